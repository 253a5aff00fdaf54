"""The last look at what goes to a robot: numbers that are not finite or beyond its limits never leave the server.

`clamp` puts a number that is too large onto the limit; `hold` gives up the chunk from its first bad step on and repeats
the last good action instead. A number that is not finite is always replaced by that coordinate's last good one. Where
nothing good has gone before, there is nothing to hold: the answer is refused.
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
    """Actions that may go out, and how many steps were changed."""

    actions: Float[Array, "h d"]
    steps_changed: int


class NothingToHoldError(ValueError):
    """The first action of an episode is unusable."""


@dataclass(frozen=True)
class Guard:
    """Limits in action units, one pair for all coordinates or one per coordinate."""

    low: tuple[float, ...] = (-np.inf,)
    high: tuple[float, ...] = (np.inf,)
    mode: GuardMode = "clamp"

    def __post_init__(self) -> None:
        require_choice("guard", self.mode, get_args(GuardMode))
        if len(self.low) != len(self.high) or not all(a < b for a, b in zip(self.low, self.high, strict=False)):
            raise ValueError(f"limits must be pairs with low < high; got {self.low} and {self.high}")

    def require_fits(self, action_dim: int) -> None:
        """Refuse limits for another number of coordinates."""
        if len(self.low) not in (1, action_dim):
            raise ValueError(f"limits must be one pair or {action_dim}, one per action; got {len(self.low)}")

    def check(self, actions: Float[Array, "h d"], last: Float[Array, " d"] | None) -> Guarded:
        """The same actions where they are fine; `last` is the last good action of the episode, if any."""
        low, high = np.asarray(self.low), np.asarray(self.high)
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
            safe[step] = np.clip(safe[step], low, high)
        return Guarded(safe, int(bad.sum()))


def _require(action: Float[Array, " d"] | None) -> Float[Array, " d"]:
    if action is None:
        raise NothingToHoldError("the episode's first action is not usable and there is none before it to hold")
    return action
