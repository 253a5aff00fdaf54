"""What the counts of a benchmark say and how surely: intervals for rates, means over seeds, paired comparisons.

Everything here is a deterministic function of its arguments.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import NormalDist

from scipy.special import chdtri, stdtrit

LEVEL = 0.95
"""Coverage of every interval that is printed."""
ALIKE, ALIKE_OF_TWO = 0.5, 0.7
"""Training seeds are pooled if their chi-square test of equal rates has a p-value above this; two seeds show less."""
POOLED_LEVEL = 0.935
"""Level of the pooled interval: `benchmarks/interval_coverage.py` shows what the whole covers."""

_Z = NormalDist().inv_cdf((1 + LEVEL) / 2)


@dataclass(frozen=True)
class Interval:
    """An estimate with the ends of its interval, all in [0, 1]."""

    value: float
    low: float
    high: float
    seeds: tuple[float, float] | None = None
    """Rates of the lowest and the highest training seed, where there are several."""

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


def effective_trials(weights: Sequence[float], trials: Sequence[float]) -> float:
    """How many trials of one rate a weighted mean of rates is worth: (sum w)^2 / sum(w^2 / n).

    It depends on the design alone, so it stays finite where a group succeeded always or never.
    """
    if len(weights) != len(trials) or not weights or not min(trials) > 0:
        raise ValueError(f"weights and trials must pair up, trials positive; got {weights} and {trials}")
    return sum(weights) ** 2 / sum(w * w / n for w, n in zip(weights, trials, strict=True))


def over_seeds(rates: Sequence[float], trials: Sequence[float]) -> Interval:
    """Interval of a method's mean success rate from models trained with different seeds; `trials` per model.

    Korn and Graubard (1998): Wilson's interval of the mean rate, at the number of independent episodes that would vary
    as the seeds do, reduced for Student's t. That number is noisy with few seeds, so episodes are pooled first if a
    preliminary test (Bancroft 1944) finds the seeds no more different than chance makes equal models. Pooling after a
    look at the data covers too much where the models are equal, which is why it is done at `POOLED_LEVEL`; the whole
    covers 93 to 97 % (docs/explanation/intervals.md). One model's interval is Wilson's and speaks of that model alone.
    """
    if len(rates) != len(trials) or not rates or not min(trials) > 0:
        raise ValueError(f"rates and trials must pair up, trials positive; got {rates} and {trials}")
    seeds, mean = len(rates), math.fsum(rates) / len(rates)
    if seeds == 1:
        return wilson(mean, trials[0])
    together = effective_trials([1.0] * seeds, trials)
    variance = math.fsum((rate - mean) ** 2 for rate in rates) / (seeds - 1)
    # Jeffreys' estimate, so that a single failure, which some seed must have, is no evidence.
    chance = (mean * together + 0.5) / (together + 1)
    surplus = variance / (chance * (1 - chance) * seeds / together)
    span = (min(rates), max(rates))
    alike = ALIKE_OF_TWO if seeds == 2 else ALIKE
    if surplus * (seeds - 1) <= chdtri(seeds - 1, alike):
        return replace(wilson(mean, together, POOLED_LEVEL), seeds=span)
    shrink = _Z / float(stdtrit(seeds - 1, (1 + LEVEL) / 2))
    return replace(wilson(mean, together / surplus * shrink**2), seeds=span)


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


def paired_over_seeds(pairs: Sequence[Sequence[tuple[bool, bool]]]) -> "PairedDifference":
    """Interval of the difference A - B in success rate; one sequence of paired episodes per training seed.

    The unit is the training seed: Student's t of the seeds' own differences. With few seeds these can lie closer
    together than episodes alone allow; the variance is therefore at least what chance makes of equal seeds, with one
    more discordant pair than was seen. The interval covers 95 % or more. One seed: its episodes are the units, and the
    interval says nothing about other seeds.
    """
    if not pairs or not all(pairs):
        raise ValueError(f"every seed must have paired episodes; got {[len(seed) for seed in pairs]}")
    seeds, differences, chances = len(pairs), [], []
    for seed in pairs:
        a, b = (sum(pair[side] for pair in seed) for side in (0, 1))
        mean = (a - b) / len(seed)
        discordant = min(1.0, (sum(x != y for x, y in seed) + 1) / len(seed))
        differences.append(mean)
        chances.append((discordant - mean**2) / len(seed))
    mean, variance = math.fsum(differences) / seeds, math.fsum(chances) / seeds
    factor = _Z
    if seeds > 1:
        variance = max(variance, math.fsum((each - mean) ** 2 for each in differences) / (seeds - 1))
        factor = float(stdtrit(seeds - 1, (1 + LEVEL) / 2))
    half = factor * math.sqrt(max(0.0, variance) / seeds)
    return PairedDifference(mean, max(-1.0, mean - half), min(1.0, mean + half), tuple(differences))


def mean_over_seeds(differences: Sequence[float]) -> "PairedDifference":
    """Student's t interval of a mean difference from one value per training seed; one seed: no width is known."""
    seeds, mean = len(differences), math.fsum(differences) / len(differences)
    if seeds == 1:
        return PairedDifference(mean, -math.inf, math.inf, tuple(differences))
    variance = math.fsum((each - mean) ** 2 for each in differences) / (seeds - 1)
    half = float(stdtrit(seeds - 1, (1 + LEVEL) / 2)) * math.sqrt(variance / seeds)
    return PairedDifference(mean, mean - half, mean + half, tuple(differences))


@dataclass(frozen=True)
class PairedDifference:
    """A difference of two success rates (in [-1, 1]) or of other means, with the ends of its interval."""

    value: float
    low: float
    high: float
    by_seed: tuple[float, ...]
