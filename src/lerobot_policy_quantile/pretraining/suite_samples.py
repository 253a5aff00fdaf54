"""Samples of LIBERO's suites: images, the instruction, the scripted expert's actions, and privileged positions.

Axes: n sample, h chunk step, d action dim. Heights are the simulator's own: suites stand on different grounds.
"""

from dataclasses import dataclass

from jaxtyping import Bool, Float, Int, Shaped, UInt8

from lerobot_policy_quantile.pretraining.arrays import Arrays
from lerobot_policy_quantile.scenes.contract import Array

SUITES = ("libero_spatial", "libero_object", "libero_goal", "libero_10")


@dataclass(frozen=True)
class SuiteSamples(Arrays):
    """Moments of play in tasks of the suites."""

    external: UInt8[Array, "n y x 3"]
    wrist: UInt8[Array, "n y x 3"]
    state: Float[Array, "n 8"]
    instruction: Shaped[Array, " n"]  # texts
    suite: Int[Array, " n"]  # in the order of `SUITES`
    target: Float[Array, "n 3"]  # what the expert is after now
    destination: Float[Array, "n 3"]  # where that goes
    external_place: Float[Array, "n 3"]
    external_turn: Float[Array, "n 3 3"]
    wrist_place: Float[Array, "n 3"]
    wrist_turn: Float[Array, "n 3 3"]
    actions: Float[Array, "n h d"]
    valid: Bool[Array, "n h"]
