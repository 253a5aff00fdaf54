"""Best-arm identification with a fixed number of episodes: successive rejects (Audibert, Bubeck and Munos 2010).

Arms are run in phases on the same episodes; after each phase the worst one is dropped. Everything here is a function of
counts: the same journal gives the same choice.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

DRAWS = 20_000


def phase_lengths(arms: int, budget: int) -> list[int]:
    """Episodes per surviving arm at the end of each of the arms - 1 phases; together at most `budget` are run.

    n_k = ceil((budget - arms) / (c (arms + 1 - k))), c = 1/2 + sum of 1/i for i = 2 .. arms.
    """
    if arms < 2:
        raise ValueError(f"arms must be at least two; got {arms}")
    if budget <= arms:
        raise ValueError(f"--budget must be more than the {arms} decoders; got {budget}")
    c = 0.5 + sum(1 / i for i in range(2, arms + 1))
    return [math.ceil((budget - arms) / (c * (arms + 1 - k))) for k in range(1, arms)]


def worst(wins: Mapping[str, int]) -> str:
    """The arm with the fewest successes on the same episodes; of equal ones the one named last."""
    fewest = min(wins.values())
    return [arm for arm, count in wins.items() if count == fewest][-1]


def probability_best(wins: Sequence[int], trials: Sequence[int], seed: int = 0) -> list[float]:
    """Probability of each arm to have the highest rate, from uniform priors and episodes taken as independent."""
    draw = np.random.default_rng(seed)
    rates = np.stack([draw.beta(1 + w, 1 + n - w, DRAWS) for w, n in zip(wins, trials, strict=True)])
    return [float(share) for share in np.bincount(rates.argmax(axis=0), minlength=len(wins)) / DRAWS]
