"""What a study of so many seeds and episodes can show: scatter between seeds and between episodes, and power.

Model: the seeds' true differences of two variants scatter around the mean difference with variance `seeds`, and the
paired difference of one episode (-1, 0 or 1) around its seed's with variance `episodes`. A claim holds where the lower
end of `paired_over_seeds` is above 0.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, variance

from scipy.special import chdtri, stdtrit

from lerobot_policy_quantile.evaluation.tables.intervals import LEVEL

CHANCE = 0.8
"""Power asked of a study: the probability that a true difference is told."""
_NODES = 400


@dataclass(frozen=True)
class Scatter:
    """Variances of a quantity that was measured once per episode, in several seeds."""

    seeds: float
    """Between seeds: what is left when the share of episodes is taken out; at least 0."""
    episodes: float
    """Between episodes of one seed."""

    def of_mean(self, episodes: int) -> float:
        """Variance of one seed's mean over so many episodes."""
        return self.seeds + self.episodes / episodes


def scatter_of(values: Sequence[Sequence[float]]) -> Scatter:
    """Moment estimates from the episodes of every seed."""
    if len(values) < 2 or min(map(len, values)) < 2:
        raise ValueError(f"scatter needs two seeds of two episodes or more; got {[len(seed) for seed in values]}")
    within = fmean(variance(seed) for seed in values)
    share = fmean(variance(seed) / len(seed) for seed in values)
    return Scatter(max(0.0, variance([fmean(seed) for seed in values]) - share), within)


def pooled_scatter(found: Iterable[Scatter]) -> Scatter:
    """Mean of the variances: one pair of seeds tells little about the scatter between seeds."""
    each = list(found)
    return Scatter(fmean(one.seeds for one in each), fmean(one.episodes for one in each))


def power(difference: float, seeds: int, episodes: int, scatter: Scatter) -> float:
    """Probability that a study tells a true difference of two variants (rates in [0, 1], `episodes` per seed).

    The seeds' variance S is chi-square with seeds - 1 degrees of freedom; the interval takes at least what episodes
    alone make of it. Given S, the mean difference is normal.
    """
    if seeds < 2 or episodes < 1:
        raise ValueError(f"power needs two seeds and one episode or more; got {seeds} and {episodes}")
    spread = scatter.of_mean(episodes)
    least = (scatter.episodes + 1 / episodes) / episodes  # with one more discordant pair than was seen
    factor = float(stdtrit(seeds - 1, (1 + LEVEL) / 2))
    told, normal = 0.0, NormalDist()
    for node in range(_NODES):
        seen = spread * float(chdtri(seeds - 1, (node + 0.5) / _NODES)) / (seeds - 1)
        half = factor * math.sqrt(max(seen, least) / seeds)
        told += normal.cdf((difference - half) / math.sqrt(spread / seeds)) if spread > 0 else float(difference > half)
    return told / _NODES


def smallest_difference(seeds: int, episodes: int, scatter: Scatter, chance: float = CHANCE) -> float | None:
    """The smallest true difference that is told with this probability; None if not even 100 points are."""
    low, high = 0.0, 1.0
    if power(high, seeds, episodes, scatter) < chance:
        return None
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle, seeds, episodes, scatter) >= chance else (middle, high)
    return high
