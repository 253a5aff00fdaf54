"""The policy's normalised action units and the robot's: one line per dimension, read off the saved postprocessor."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from lerobot_policy_quantile.util.quantiles import Array


@dataclass(frozen=True)
class ActionUnits:
    """robot = scale * normalised + offset, per action dimension."""

    scale: Float[Array, " d"]
    offset: Float[Array, " d"]

    def normalised(self, actions: Float[Array, "*s d"]) -> Float[Array, "*s d"]:
        """The robot's actions in the policy's units."""
        return np.asarray((actions.astype(np.float64) - self.offset) / self.scale)

    @property
    def key(self) -> tuple[float, ...]:
        """Equal for policies that normalise alike, to six digits."""
        return tuple(float(f"{number:.6g}") for number in (*self.scale, *self.offset))


def units_of(after: Any, action_dim: int) -> ActionUnits:
    """Of a policy's postprocessor: every way to normalise that LeRobot has is a line, so two points tell it."""
    offset, one = (np.asarray(after(torch.full((1, action_dim), value))[0], dtype=np.float64) for value in (0.0, 1.0))
    scale = one - offset
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        raise ValueError(f"the policy's postprocessor must scale actions by positive numbers; got {scale.tolist()}")
    return ActionUnits(scale, offset)


def saved_units(folder: Path, action_dim: int) -> ActionUnits:
    """The same for a policy folder; the model itself is not loaded."""
    from lerobot.processor import PolicyProcessorPipeline
    from lerobot.processor.converters import policy_action_to_transition, transition_to_policy_action

    after = PolicyProcessorPipeline.from_pretrained(
        folder,
        config_filename="policy_postprocessor.json",
        overrides={"device_processor": {"device": "cpu"}},
        to_transition=policy_action_to_transition,
        to_output=transition_to_policy_action,
    )
    return units_of(after, action_dim)
