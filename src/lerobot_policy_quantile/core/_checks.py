"""Input checks shared by the maths: every message names the field, the value and what is allowed.

Shapes are checked everywhere, values only on the CPU: on another device the host would have to wait for them.
"""

import torch
from torch import Tensor

from lerobot_policy_quantile.core._devices import on_host
from lerobot_policy_quantile.util.names import require_choice as require_choice


def require_between(field: str, value: float, low: float, high: float, *, open_high: bool = False) -> None:
    """Refuse a number outside [low, high], or [low, high) with `open_high`. NaN is outside."""
    inside = low <= value < high if open_high else low <= value <= high
    if not inside:
        raise ValueError(f"{field} must lie in [{low}, {high}{')' if open_high else ']'}; got {value}")


def require_shape(field: str, tensor: Tensor, expected: tuple[int, ...]) -> None:
    """Refuse a tensor of another shape."""
    if tuple(tensor.shape) != expected:
        raise ValueError(f"{field} must have shape {expected}; got {tuple(tensor.shape)}")


def require_no_nan(field: str, tensor: Tensor) -> None:
    """Refuse NaN and name the first coordinate that holds one.

    One sum decides the usual case: it is finite only if every entry is. The exact search runs
    only when it is not (NaN, an infinity, or an overflow of large finite entries).
    """
    if not on_host(tensor):
        return
    if torch.isfinite(tensor.detach().sum()):
        return
    holes = torch.isnan(tensor).nonzero()
    if len(holes):
        raise ValueError(
            f"{field} must not contain NaN; got {len(holes)} NaN of {tensor.numel()} values,"
            f" the first at index {tuple(holes[0].tolist())}"
        )
