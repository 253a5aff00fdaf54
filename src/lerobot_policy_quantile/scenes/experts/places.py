"""Where a thing is let go of: over a plate, in a basket, in a drawer, on a stove, a rack, a caddy, or the table."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.scenes.experts.geometry import UP, Array, hand_frame
from lerobot_policy_quantile.scenes.experts.grips import Round, family, grip_for
from lerobot_policy_quantile.scenes.experts.plan import DRAG, Step, is_drawer
from lerobot_policy_quantile.scenes.experts.view import View

BASKET_HEIGHT = 0.16
"""Of the hand above the basket's origin when it lets go; the rim is at 0.146, the inner half sizes are 0.06."""
BESIDE_IN_BASKET = (0.022, 0.027)
"""Half the distance of two things in one basket, along x (cylinders only) and y."""
BESIDE_ON_STOVE = 0.055
OVEN_FRONT = 0.25
"""Of the point in front of a microwave, from the middle of its inside."""
DOOR_LENGTH, DOOR_ROOM = 0.27, 0.125
"""A microwave's door from its hinge; what a hand needs beside it: half the palm, half the door, a centimetre."""

ON_RACK = np.array([0.035, 0.054, 0.260])
"""A bottle's foot above the rack's lip, from the rack's origin. It is let go of leaning backwards and lies down."""


@dataclass(frozen=True)
class Spot:
    """Where a thing's origin is when the fingers open."""

    position: Float[Array, "3"]
    margin: float = 0.03
    """Metres between the carried thing and what it is carried over."""
    rotation: Float[Array, "3 3"] | None = None
    """Of the hand; None leaves the wrist as it is."""
    front: Float[Array, "3"] | None = None
    """A point to pass first, for places that are entered from the side; its x is the lane's at the present y."""
    slack: float = 0.012
    """Metres aside at which letting go is good enough."""


def spot_for(view: View, step: Step, siblings: Sequence[Step]) -> Spot:
    """The spot of a step now. `siblings` are the steps that share its place, itself included."""
    thing, place = step.thing, str(step.place)
    bottom = view.below_origin(thing)
    if view.is_thing(place):
        return Spot(view.position(place) + (0.016 + bottom) * UP)
    middle, parent = view.site(place), view.parent(place)
    kind = "" if parent is None else family(view.kind(parent))
    number = siblings.index(step)
    if kind == "basket":
        return _in_basket(view, thing, str(parent), 2 * number - 1 if len(siblings) > 1 else 0)
    if is_drawer(place):
        _, out, _ = view.drawer(place)
        return Spot(middle + 0.02 * out - 0.002 * UP)
    if kind == "flat_stove":
        beside = BESIDE_ON_STOVE * (1 - 2 * number) if len(siblings) > 1 else 0.0
        return Spot(middle + np.array([beside, 0.0, 0.037 + bottom]))
    if kind == "wine_rack":
        return Spot(view.position(str(parent)) + ON_RACK, rotation=hand_frame(np.pi / 2, 0.6))
    if kind == "desk_caddy":
        return Spot(np.array([*middle[:2], middle[2] - 0.05]), rotation=hand_frame(np.pi / 2))
    if kind == "microwave":
        return _in_oven(view, str(parent), middle)
    if step.skill == DRAG:
        return Spot(middle + bottom * UP)
    if parent is not None:
        return Spot(middle + (bottom + 0.01) * UP)
    on_table = np.array([*middle[:2], max(middle[2], view.ground) + bottom + 0.01])
    return Spot(_roomiest(view, thing, on_table, view.half_size(place)))


def _in_oven(view: View, oven: str, middle: Float[Array, "3"]) -> Spot:
    """Between the side walls; on the way in, as far from the open door as the palm is wide."""
    inside = middle + np.array([-0.04, -0.03, -0.065])
    hinge, angle = view.anchor(f"{oven}_microjoint"), view.joint(f"{oven}_microjoint")
    palm = view.hand.position[1] - 0.05
    along = np.clip((palm - hinge[1]) / min(np.sin(angle), -0.5), 0.0, DOOR_LENGTH)
    lane = max(inside[0], hinge[0] + along * np.cos(angle) + DOOR_ROOM)
    front = np.array([lane, middle[1] - OVEN_FRONT, inside[2] + 0.015])
    return Spot(inside, front=front, rotation=hand_frame(np.pi / 2, 0.6))


def _roomiest(view: View, thing: str, middle: Float[Array, "3"], half: Float[Array, "3"]) -> Float[Array, "3"]:
    """The nearest point of a region at which the hand, as it holds the thing now, touches nothing else."""
    reach = np.maximum(half[:2] - 0.012, 0.0)
    offsets = [np.array([x * reach[0], y * reach[1], 0.0]) for x in (0, -1, 1) for y in (0, -1, 1)]
    points: list[Float[Array, "3"]] = [middle + offset for offset in offsets]
    held = view.hand.moved(-view.position(thing))
    depths = [view.overlap(held.moved(point), thing) for point in points]
    free = [point for point, depth in zip(points, depths, strict=True) if depth < 0.003]
    here = view.position(thing)
    return min(free, key=lambda point: float(np.linalg.norm(point - here))) if free else points[int(np.argmin(depths))]


def _in_basket(view: View, thing: str, basket: str, side: int) -> Spot:
    origin = view.position(basket)
    held_above = (view.hand.position - view.position(thing))[2]
    standing = isinstance(grip_for(view.kind(thing)), Round)
    beside = np.array([BESIDE_IN_BASKET[0] * standing, BESIDE_IN_BASKET[1]])
    height = origin[2] + BASKET_HEIGHT - held_above
    return Spot(np.array([*(origin[:2] + side * beside), height]), margin=0.02)
