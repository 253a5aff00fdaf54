"""Scalar signals of a replan, from predicted quantiles alone: nothing is computed twice and no pass is added.

Widths and distances count in mean widths of calibration episodes, so that dimensions can be compared. The plan that is
held against a new law is the median of the last one, from the step on at which it was given up.

Axes: h chunk step, d action dim, m motion dim, k level.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.serving.spread import MASS, spread
from lerobot_policy_quantile.util.quantiles import Array, quantile_at

SIGNALS = ("width", "max_width", "relative_width", "surprise", "instability")
"""What there is; the last two need a chunk that is longer than the part of it that is executed."""


@dataclass(frozen=True)
class SignalUnits:
    """What signals are measured against."""

    levels: tuple[float, ...]
    motion: tuple[int, ...]
    """Action dimensions that count."""
    reference: Float[Array, "h m"]
    """Mean width of the central 80 % on calibration episodes."""

    def signals(
        self, now: Float[Array, "h d k"], before: Float[Array, "h d k"] | None, executed: int
    ) -> dict[str, float]:
        """Of one replan; NaN where the last plan left nothing over. `executed`: steps since the last replan.

        width           mean over steps and dimensions, in mean widths of the dimension
        max_width       the largest of them
        relative_width  mean, in mean widths of the dimension at the same chunk step
        surprise        mean distance of the left-over plan outside the new central 80 %
        instability     mean distance of the left-over plan's ranks under the new law from the median, 0 to 1
        """
        law = np.asarray(now, dtype=float)[:, list(self.motion)]
        usual = self.reference.mean(axis=0)
        widths = spread(law, self.levels)
        found = {
            "width": float((widths / usual).mean()),
            "max_width": float((widths / usual).max()),
            "relative_width": float((widths / self.reference).mean()),
            "surprise": np.nan,
            "instability": np.nan,
        }
        if before is None or not 0 < executed < len(before):
            return found
        plan = quantile_at(np.asarray(before, dtype=float)[executed:, list(self.motion)], self.levels, 0.5)
        law = law[: len(plan)]
        low, high = (quantile_at(law, self.levels, (1 + sign * MASS) / 2) for sign in (-1, 1))
        outside = np.maximum(np.maximum(low - plan, plan - high), 0.0)
        rank = (law <= plan[..., None]).mean(axis=-1)
        return found | {
            "surprise": float((outside / usual).mean()),
            "instability": float(2 * np.abs(rank - 0.5).mean()),
        }


def reference_widths(
    quantiles: Sequence[Float[Array, "q h d k"]], levels: Sequence[float], motion: Sequence[int]
) -> Float[Array, "h m"]:
    """Mean widths over the replans of episodes, never zero."""
    every = np.concatenate([np.asarray(chunk, dtype=float)[:, :, list(motion)] for chunk in quantiles])
    widths = spread(every, levels).mean(axis=0)
    return np.asarray(np.maximum(widths, 1e-9))
