"""Limits on the actions that leave the server: every action is finite and inside the robot's limits.

`clamp` clips values to the limits. `hold` replaces all steps from the first one outside the limits by the last valid
action. Values that are not finite are always replaced by the last valid one of their dimension; if the episode has had
no valid action yet, the request fails.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from lerobot_policy_quantile.util.names import require_choice

Array = NDArray[Any]
GuardMode = Literal["clamp", "hold"]


class Guarded(NamedTuple):
    """Actions inside the limits, and the number of steps that were changed."""

    actions: Float[Array, "h d"]
    steps_changed: int


class NothingToHoldError(ValueError):
    """The first action of an episode is invalid, so there is no earlier one to hold."""


@dataclass(frozen=True)
class Guard:
    """Limits in action units, one pair for all dimensions or one per dimension."""

    low: tuple[float, ...] = (-np.inf,)
    high: tuple[float, ...] = (np.inf,)
    mode: GuardMode = "clamp"
    use_bounds: bool = False
    """Whether a chunk's conformal bounds, where they are narrower, are limits, too."""

    def __post_init__(self) -> None:
        require_choice("guard", self.mode, get_args(GuardMode))
        if len(self.low) != len(self.high) or not all(a < b for a, b in zip(self.low, self.high, strict=False)):
            raise ValueError(f"limits must be pairs with low < high; got {self.low} and {self.high}")

    def require_fits(self, action_dim: int) -> None:
        """Raise ValueError unless the limits fit `action_dim` dimensions."""
        if len(self.low) not in (1, action_dim):
            raise ValueError(f"limits must be one pair or {action_dim}, one per action; got {len(self.low)}")

    def check(
        self,
        actions: Float[Array, "h d"],
        last: Float[Array, " d"] | None,
        bounds: Float[Array, "h d 2"] | None = None,
    ) -> Guarded:
        """The actions with invalid values replaced; `last` is the episode's last valid action, if any."""
        low, high = (np.broadcast_to(np.asarray(limit), actions.shape) for limit in (self.low, self.high))
        if self.use_bounds and bounds is not None and not np.isnan(bounds).any():
            low, high = (np.clip(bounds[..., side], low, high) for side in (0, 1))
        finite = np.isfinite(actions)
        inside = finite & (actions >= low) & (actions <= high)
        bad = ~inside.all(axis=1)
        if not bad.any():
            return Guarded(actions, 0)
        safe = np.array(actions)
        before = last
        for step in np.flatnonzero(bad):
            before = safe[step - 1] if step else last
            if self.mode == "hold":
                safe[step:] = _require(before)
                return Guarded(safe, len(safe) - int(step))
            row = finite[step]
            if not row.all():
                safe[step] = np.where(row, safe[step], _require(before))
            safe[step] = np.clip(safe[step], low[step], high[step])
        return Guarded(safe, int(bad.sum()))


def _require(action: Float[Array, " d"] | None) -> Float[Array, " d"]:
    if action is None:
        raise NothingToHoldError("the episode's first action is not usable and there is none before it to hold")
    return action
