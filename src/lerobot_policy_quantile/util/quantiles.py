"""The predicted quantile function in numpy, for code that runs without torch. `core.quantile_function` is its twin."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

Array = NDArray[Any]


LOWEST_LEVEL = 0.025


def levels_of(k: int) -> Float[Array, " k"]:
    """The levels of a head with K quantiles: from 0.025 to 0.975 in equal steps."""
    return np.linspace(LOWEST_LEVEL, 1 - LOWEST_LEVEL, k)


def quantile_at(quantiles: Float[Array, "*s k"], levels: Sequence[float] | Array, rank: float) -> Float[Array, "*s"]:
    """Q(rank): linear between the knots (levels, quantiles); the first and last segments go on to 0 and 1."""
    knots = np.asarray(levels)
    left = int(np.clip(np.searchsorted(knots, rank, side="right") - 1, 0, len(knots) - 2))
    weight = (rank - knots[left]) / (knots[left + 1] - knots[left])
    return np.asarray(quantiles[..., left] + weight * (quantiles[..., left + 1] - quantiles[..., left]))
