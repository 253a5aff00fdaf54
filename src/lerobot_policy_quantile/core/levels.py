"""Quantile levels: the probabilities tau_k at which the head predicts."""

import torch
from jaxtyping import Float
from torch import Tensor

from lerobot_policy_quantile.core._devices import on_host

LOWEST_LEVEL = 0.025
DEFAULT_K = 21


def quantile_levels(k: int = DEFAULT_K, *, dtype: torch.dtype = torch.float32) -> Float[Tensor, " k"]:
    """Levels tau_k = 0.025 + 0.95 k / (K - 1), k = 0..K-1; the middle one is exactly 1/2."""
    if k < 3 or k % 2 == 0:
        raise ValueError(f"K must be odd and at least 3, so that one level is the median; got {k}")
    c = k // 2
    offsets = torch.arange(-c, c + 1, dtype=torch.float64, device="cpu") / c  # no float64 on Apple's GPUs
    return (0.5 + (0.5 - LOWEST_LEVEL) * offsets).to(dtype)


def check_levels(levels: Float[Tensor, " k"]) -> None:
    """Refuse levels that are not a strictly increasing vector inside (0, 1)."""
    if levels.ndim != 1 or len(levels) < 2:
        raise ValueError(f"levels must be a vector of at least two probabilities; got shape {tuple(levels.shape)}")
    if not on_host(levels):
        return
    inside = bool(((levels > 0) & (levels < 1)).all())
    if not inside or not bool((levels.diff() > 0).all()):
        raise ValueError(f"levels must increase strictly inside (0, 1); got {_short(levels)}")


def check_median_levels(levels: Float[Tensor, " k"]) -> None:
    """Refuse levels a median-and-gaps head cannot use: an even count, or a middle level off 1/2."""
    check_levels(levels)
    k = len(levels)
    if k % 2 == 0:
        raise ValueError(f"levels must be odd in number, so that the middle one is the median; got K = {k}")
    middle = float(levels[k // 2])
    if abs(middle - 0.5) > 1e-6:
        raise ValueError(f"levels must have 0.5 in the middle; got {middle} in {_short(levels)}")


def _short(levels: Tensor) -> list[float]:
    return [round(float(level), 6) for level in levels.flatten()[:32]]
