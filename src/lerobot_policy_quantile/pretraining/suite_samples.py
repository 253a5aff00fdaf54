"""Samples of LIBERO's suites: images, the instruction, the scripted expert's actions, and privileged positions.

Axes: n sample, h chunk step, d action dim, k kind of object (in the order of `SUITE_KINDS`). Heights
are the simulator's own: suites stand on different grounds.
"""

from dataclasses import dataclass

from jaxtyping import Bool, Float, Int, Shaped, UInt8

from lerobot_policy_quantile.pretraining.arrays import Arrays
from lerobot_policy_quantile.scenes.contract import Array
from lerobot_policy_quantile.scenes.libero.kinds import KINDS

SUITES = ("libero_spatial", "libero_object", "libero_goal", "libero_10")

BASKET = "basket"
SUITE_KINDS = (
    *KINDS,
    "akita_black_bowl",
    "black_book",
    "chefmate_8_frypan",
    "cookies",
    "desk_caddy",
    "flat_stove",
    "glazed_rim_porcelain_ramekin",
    "microwave",
    "moka_pot",
    "plate",
    "porcelain_mug",
    "red_coffee_mug",
    "white_cabinet",
    "white_yellow_mug",
    "wine_bottle",
    "wine_rack",
    "wooden_cabinet",
    BASKET,
)
"""LIBERO's categories of objects and fixtures in the four suites, LIBERO-Object's own first."""


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
    kinds: Float[Array, "n k 3"]  # where the only thing of a kind is; NaN for several or none
    external_place: Float[Array, "n 3"]
    external_turn: Float[Array, "n 3 3"]
    wrist_place: Float[Array, "n 3"]
    wrist_turn: Float[Array, "n 3 3"]
    actions: Float[Array, "n h d"]
    valid: Bool[Array, "n h"]
