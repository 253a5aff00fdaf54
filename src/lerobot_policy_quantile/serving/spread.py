"""Spread of the predicted distribution at each step, and adaptive replanning based on it.

Spread is the width of the central 80 % interval, in action units, of each coordinate at each step of a chunk.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.util.quantiles import Array, quantile_at

MASS = 0.8


def spread(quantiles: Float[Array, "h d k"], levels: Sequence[float]) -> Float[Array, "h d"]:
    """Q(0.9) - Q(0.1), linear between the levels and beyond them."""
    low, high = (quantile_at(quantiles, levels, (1 + sign * MASS) / 2) for sign in (-1, 1))
    width: Float[Array, "h d"] = high - low
    return width


def motion_spread(widths: Float[Array, "h d"], grippers: Sequence[int]) -> Float[Array, " h"]:
    """Mean spread of the motion dimensions at each step. Grippers are left out: they are open or closed."""
    mean: Float[Array, " h"] = np.delete(widths, list(grippers), axis=1).mean(axis=1)
    return mean


def served_grippers(metadata: Mapping[str, Any]) -> tuple[int, ...]:
    """Gripper dimensions in a server's metadata; the last dimension if an older server does not list them."""
    return tuple(metadata.get("grippers", (-1,)))


@dataclass(frozen=True)
class Replanning:
    """Execute the steps whose mean spread over the motion dimensions stays below a threshold, then replan.

    At least `minimum` steps are executed, at most `maximum` (the chunk if None).
    """

    threshold: float
    minimum: int = 1
    maximum: int | None = None

    def __post_init__(self) -> None:
        if not self.threshold > 0:
            raise ValueError(f"threshold must be a positive spread in action units; got {self.threshold}")
        if self.minimum < 1 or (self.maximum is not None and self.maximum < self.minimum):
            raise ValueError(f"minimum must lie in 1..maximum; got {self.minimum} and {self.maximum}")

    def steps(self, widths: Float[Array, "h d"], grippers: Sequence[int]) -> int:
        """Number of steps of a chunk to execute; `grippers` are the dimensions that do not count."""
        doubt = motion_spread(widths, grippers) > self.threshold
        certain = int(np.argmax(doubt)) if doubt.any() else len(doubt)
        most = len(doubt) if self.maximum is None else min(self.maximum, len(doubt))
        return max(min(certain, most), min(self.minimum, len(doubt)))
