"""Where a thing is let go of: over a plate, in a basket, in a drawer, on a stove, a rack, a caddy, or the table."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.scenes.experts.geometry import UP, Array, Pose, hand_frame, nearest_half_turn, yaw_and_tilt
from lerobot_policy_quantile.scenes.experts.grips import Round, family, grip_for
from lerobot_policy_quantile.scenes.experts.plan import DRAG, Step, is_drawer
from lerobot_policy_quantile.scenes.experts.view import View

ABOVE_RIM = 0.012
"""Of the hand above a bowl's rim; the tips reach 9 mm lower."""
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
    if view.is_thing(place) and family(view.kind(place)) == "akita_black_bowl":
        return _over_bowl(view, thing, place)
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
        return _free_spot(view, thing, middle, view.half_size(place))
    if parent is not None:
        return Spot(middle + (bottom + 0.01) * UP)
    on_table = np.array([*middle[:2], max(middle[2], view.ground) + bottom + 0.01])
    return _roomiest(view, thing, on_table, view.half_size(place))


def _in_oven(view: View, oven: str, middle: Float[Array, "3"]) -> Spot:
    """Between the side walls; on the way in, as far from the open door as the palm is wide."""
    inside = middle + np.array([-0.04, -0.03, -0.065])
    hinge, angle = view.anchor(f"{oven}_microjoint"), view.joint(f"{oven}_microjoint")
    palm = view.hand.position[1] - 0.05
    along = np.clip((palm - hinge[1]) / min(np.sin(angle), -0.5), 0.0, DOOR_LENGTH)
    lane = max(inside[0], hinge[0] + along * np.cos(angle) + DOOR_ROOM)
    front = np.array([lane, middle[1] - OVEN_FRONT, inside[2] + 0.015])
    return Spot(inside, front=front, rotation=hand_frame(np.pi / 2, 0.6))


def _free_spot(view: View, thing: str, middle: Float[Array, "3"], half: Float[Array, "3"]) -> Spot:
    """The nearest point well inside a region at which a thing on the table meets no other; else the middle."""
    inner, here = np.maximum(half[:2] - 0.018, 0.0), view.position(thing)
    points = [np.array([*(middle[:2] + inner * [x, y]), here[2]]) for x, y in product((-1, -0.5, 0, 0.5, 1), repeat=2)]
    points.sort(key=lambda point: float(np.linalg.norm(point - here)))
    return Spot(next((point for point in points if view.free_at(thing, (point - here)[None, :2])), middle))


def _roomiest(view: View, thing: str, middle: Float[Array, "3"], half: Float[Array, "3"]) -> Spot:
    """The nearest point of a region, and wrist, at which a hand that holds the thing as now touches nothing else."""
    reach = np.maximum(half[:2] - 0.012, 0.0)
    here, held = view.position(thing), view.hand.position - view.position(thing)
    yaw, _ = yaw_and_tilt(view.hand.rotation)
    spots: list[tuple[float, Spot]] = []
    for turn in (yaw, 0.0, np.pi / 4, -np.pi / 4, np.pi / 2):
        for x, y in product((0, -1, 1), repeat=2):
            point = middle + np.array([x * reach[0], y * reach[1], 0.0])
            far = float(np.linalg.norm(point - here)) + 0.1 * abs(nearest_half_turn(turn - yaw))
            spots.append((far, Spot(point, rotation=hand_frame(turn))))
    spots.sort(key=lambda pair: pair[0])
    for _, spot in spots:
        if spot.rotation is not None and view.overlap(Pose(spot.position + held, spot.rotation), thing) < 0.003:
            return spot
    return Spot(middle)


def _over_bowl(view: View, thing: str, bowl: str) -> Spot:
    """The fingers open above the rim: inside they would spread against it and take the bowl along."""
    held_above = (view.hand.position - view.position(thing))[2]
    rim = view.extent(bowl)[1][2]
    return Spot(np.array([*view.position(bowl)[:2], rim + ABOVE_RIM - held_above]))


def _in_basket(view: View, thing: str, basket: str, side: int) -> Spot:
    origin = view.position(basket)
    held_above = (view.hand.position - view.position(thing))[2]
    standing = isinstance(grip_for(view.kind(thing)), Round)
    beside = np.array([BESIDE_IN_BASKET[0] * standing, BESIDE_IN_BASKET[1]])
    height = origin[2] + BASKET_HEIGHT - held_above
    return Spot(np.array([*(origin[:2] + side * beside), height]), margin=0.02)
