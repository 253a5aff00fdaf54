"""The predicted quantile function in numpy, for code that runs without torch. `core.quantile_function` is its twin."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

Array = NDArray[Any]

LOWEST_LEVEL = 0.025
SMALLEST_GAP = 1e-6
"""Gaps below this count as this wide when a density is formed; in normalised action units."""


def levels_of(k: int) -> Float[Array, " k"]:
    """The levels of a head with K quantiles: from 0.025 to 0.975 in equal steps."""
    return np.linspace(LOWEST_LEVEL, 1 - LOWEST_LEVEL, k)


def quantile_at(quantiles: Float[Array, "*s k"], levels: Sequence[float] | Array, rank: float) -> Float[Array, "*s"]:
    """Q(rank): linear between the knots (levels, quantiles); the first and last segments go on to 0 and 1."""
    knots = np.asarray(levels)
    left = int(np.clip(np.searchsorted(knots, rank, side="right") - 1, 0, len(knots) - 2))
    weight = (rank - knots[left]) / (knots[left + 1] - knots[left])
    return np.asarray(quantiles[..., left] + weight * (quantiles[..., left + 1] - quantiles[..., left]))


def rank_of(
    quantiles: Float[Array, "*s k"], levels: Sequence[float] | Array, value: Float[Array, "*s"]
) -> Float[Array, "*s"]:
    """The inverse: the largest rank in [0, 1] with Q(rank) <= value (0 when there is none)."""
    knots, wanted = np.asarray(levels), np.asarray(value)[..., None]
    left = np.clip((quantiles <= wanted).sum(-1, keepdims=True) - 1, 0, len(knots) - 2)
    low, high = (np.take_along_axis(quantiles, left + side, -1) for side in (0, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = np.where(high > low, (wanted - low) / (high - low), np.where(wanted < low, -np.inf, np.inf))
    return np.asarray(np.clip(knots[left] + weight * (knots[left + 1] - knots[left]), 0, 1)[..., 0])


def interval_densities(quantiles: Float[Array, "*s k"], levels: Float[Array, " k"]) -> Float[Array, "*s j"]:
    """Density delta tau / max(delta Q, 1e-6) of each learned interval."""
    return np.asarray(np.diff(levels) / np.maximum(np.diff(quantiles), SMALLEST_GAP))
