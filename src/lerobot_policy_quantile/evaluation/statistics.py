"""What the counts of a benchmark say and how surely: intervals for rates, means over seeds, paired comparisons.

Everything here is a deterministic function of its arguments.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from statistics import NormalDist

import numpy as np

LEVEL = 0.95
"""Coverage of every interval that is printed."""

_EXACT_SEEDS = 6
_RESAMPLES = 10_000


@dataclass(frozen=True)
class Interval:
    """An estimate with the ends of its interval, all in [0, 1]."""

    value: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """Distance between the ends."""
        return self.high - self.low


def wilson(rate: float, trials: float, level: float = LEVEL) -> Interval:
    """Wilson's score interval of a success rate.

    `trials` may be fractional: an average of rates counts as `effective_trials` of them.
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"rate must lie in [0, 1]; got {rate}")
    if not trials > 0:
        raise ValueError(f"trials must be positive; got {trials}")
    z = NormalDist().inv_cdf((1 + level) / 2)
    centre = (rate + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    return Interval(rate, max(0.0, min(rate, centre - half)), min(1.0, max(rate, centre + half)))


def effective_trials(weights: Sequence[float], trials: Sequence[int]) -> float:
    """How many trials of one rate a weighted mean of rates is worth: (sum w)^2 / sum(w^2 / n).

    It depends on the design alone, so it stays finite where a group succeeded always or never.
    """
    if len(weights) != len(trials) or not weights or min(trials) < 1:
        raise ValueError(f"weights and trials must pair up, trials at least 1; got {weights} and {trials}")
    return sum(weights) ** 2 / sum(w * w / n for w, n in zip(weights, trials, strict=True))


def bootstrap_mean(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Percentile bootstrap of a mean over seeds.

    Up to six seeds every resample is counted once, which needs no generator; beyond that ten thousand are drawn.
    """
    if not values:
        raise ValueError("values must hold at least one seed's figure; got none")
    figures = np.asarray(values, dtype=np.float64)
    n = len(figures)
    if n <= _EXACT_SEEDS:
        means = np.array([figures[list(draw)].mean() for draw in product(range(n), repeat=n)])
    else:
        means = figures[np.random.default_rng(0).integers(n, size=(_RESAMPLES, n))].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf")
    return Interval(math.fsum(values) / n, float(low), float(high))


@dataclass(frozen=True)
class Comparison:
    """Two runs on the same episodes."""

    both: int
    only_a: int
    only_b: int
    neither: int

    @property
    def pairs(self) -> int:
        """Episodes judged in both runs."""
        return self.both + self.only_a + self.only_b + self.neither

    @property
    def p_value(self) -> float:
        """McNemar's exact test: were the discordant pairs a fair coin? Two-sided."""
        n, k = self.only_a + self.only_b, min(self.only_a, self.only_b)
        tail: int = sum(math.comb(n, i) for i in range(k + 1))
        return min(1.0, float(Fraction(2 * tail, 1 << n)))

    def sentence(self, a: str = "A", b: str = "B") -> str:
        """The plain statement."""
        verdict = "not a difference at the 5 % level" if self.p_value > 1 - LEVEL else "a difference at the 5 % level"
        return (
            f"{a} is better on {self.only_a}, {b} on {self.only_b}; alike on {self.both + self.neither}"
            f" ({self.both} both succeed, {self.neither} both fail) of {self.pairs} episodes."
            f" McNemar's exact p = {self.p_value:.3g}: {verdict}."
        )


def compare(pairs: Sequence[tuple[bool, bool]]) -> Comparison:
    """Count who succeeded where; each pair is one episode's success under A and under B."""
    kinds = ((True, True), (True, False), (False, True), (False, False))
    return Comparison(*(sum(pair == kind for pair in pairs) for kind in kinds))
