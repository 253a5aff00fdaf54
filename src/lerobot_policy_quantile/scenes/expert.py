"""A scripted geometric expert: picks the object up and puts it into the goal, over a chosen route.

It knows where things are (`Scene.layout`) and follows way points. The law is proportional and saturated,
a = clip((target - end effector) / 0.05, -speed, speed), and a way point is done when the end effector is near it, not
after a fixed time: a policy without memory can then imitate it without stalling. Only the gripper waits.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.scenes.contract import Array, Layout

GAIN = 0.05
"""Metres of distance that saturate a full-scale command; OSC_POSE moves at most this far per step."""

GRIPPER_STEPS = 10
OPEN, CLOSED = -1.0, 1.0

LEAD = 0.05
"""Metres that a route around the obstacle goes ahead while it swings aside and down: the mean of two such routes runs
into the obstacle.
"""

SIDES = {"left": 1.0, "straight": 0.0, "right": -1.0}
"""Seen along the way from the start to the object."""


@dataclass(frozen=True)
class Route:
    """How the approach leads from the start to the object (metres; speed as a share of full scale)."""

    side: str = "straight"
    offset: float = 0.11
    height: float = 0.18  # of the approach, above the ground
    speed: float = 0.33

    def __post_init__(self) -> None:
        if self.side not in SIDES:
            raise ValueError(f"side must be one of {', '.join(SIDES)}; got {self.side!r}")
        if not 0 < self.speed <= 1:
            raise ValueError(f"speed must lie in (0, 1]; got {self.speed}")
        if not 0 <= self.offset <= 0.25:
            raise ValueError(f"offset must lie in [0, 0.25] metres; got {self.offset}")
        if not 0 < self.height <= 0.5:
            raise ValueError(f"height must lie in (0, 0.5] metres; got {self.height}")

    def around_obstacle(self) -> "Route":
        """The same side for the obstacle scene: further out and lower (the paper's figures)."""
        return replace(self, offset=0.15, height=0.12)


@dataclass(frozen=True)
class Grasp:
    """How an object is taken (metres). The palm is 39 mm above the point between the finger tips: tall things are
    taken near their top.
    """

    above_centre: float = 0.01  # of that point when the fingers close
    lift: float = 0.25  # of the end effector above the ground while carrying
    release: float = 0.16


GRASPS = {
    "cream_cheese": Grasp(above_centre=0.0),
    "salad_dressing": Grasp(above_centre=0.045, lift=0.28, release=0.20),
    "bbq_sauce": Grasp(above_centre=0.025),
    "ketchup": Grasp(above_centre=0.045, lift=0.28, release=0.20),
    "milk": Grasp(above_centre=0.035, lift=0.28, release=0.20),
    "orange_juice": Grasp(above_centre=0.035, lift=0.28, release=0.20),
    "milk carton": Grasp(above_centre=0.050, lift=0.29, release=0.21),
    "loaf of bread": Grasp(above_centre=0.0),
    "cereal box": Grasp(above_centre=0.042, lift=0.30, release=0.22),
}
"""Object-specific data; a kind that is not listed is taken with the default."""


@dataclass(frozen=True)
class WayPoint:
    """Go there with this gripper command until nearer than `tolerance`, then wait `wait` steps."""

    phase: str
    target: Float[Array, "3"]
    gripper: float
    tolerance: float
    wait: int = 0
    along_a_line: bool = False  # the axes saturate together instead of each by itself


def way_points(layout: Layout, start: Float[Array, "3"], route: Route, grasp: Grasp) -> list[WayPoint]:
    """Approach, descend, grasp, lift, transport, place, release, retreat."""
    thing, goal, ground = layout.object, layout.goal, layout.ground
    ahead = (thing - start)[:2] / np.linalg.norm((thing - start)[:2])
    aside = SIDES[route.side] * route.offset * np.array([-ahead[1], ahead[0]])
    high, carry = ground + route.height, ground + grasp.lift
    touch = thing[2] + grasp.above_centre

    def at(place: Float[Array, "2"], height: float) -> Float[Array, "3"]:
        return np.array([place[0], place[1], height])

    plan = []
    if route.side != "straight":
        if layout.obstacle is None:
            plan.append(WayPoint("approach", at((start + thing)[:2] / 2 + aside, high), OPEN, 0.01))
        else:
            plan.append(WayPoint("approach", at(start[:2] + aside + LEAD * ahead, high), OPEN, 0.02, along_a_line=True))
            plan.append(WayPoint("approach", at(thing[:2] + aside, high), OPEN, 0.02))
    plan.append(WayPoint("approach", at(thing[:2], high), OPEN, 0.008))
    plan.append(WayPoint("descend", at(thing[:2], touch), OPEN, 0.006))
    plan.append(WayPoint("grasp", at(thing[:2], touch), CLOSED, np.inf, GRIPPER_STEPS))
    plan.append(WayPoint("lift", at(thing[:2], carry), CLOSED, 0.02))
    if layout.obstacle is not None and route.side != "straight":
        plan.append(WayPoint("transport", at(thing[:2] + aside - LEAD * ahead, carry), CLOSED, 0.02))
        plan.append(WayPoint("transport", at(start[:2] + aside, carry), CLOSED, 0.02))
    plan.append(WayPoint("transport", at(goal[:2], carry), CLOSED, 0.012))
    plan.append(WayPoint("place", at(goal[:2], ground + grasp.release), CLOSED, 0.012))
    plan.append(WayPoint("release", at(goal[:2], ground + grasp.release), OPEN, np.inf, GRIPPER_STEPS))
    plan.append(WayPoint("retreat", at(goal[:2], carry), OPEN, 0.02))
    return plan


class Expert:
    """One episode of the expert: made after `reset`, asked once per step."""

    def __init__(self, layout: Layout, state: Float[Array, "8"], route: Route) -> None:
        self.grasp = GRASPS.get(layout.object_kind, Grasp())
        self.plan = way_points(layout, state[:3], route, self.grasp)
        self.route = route
        self.number = 0
        self._waited = 0

    @property
    def finished(self) -> bool:
        """Whether every way point lies behind."""
        return self.number == len(self.plan)

    @property
    def phase(self) -> str:
        """What the expert is doing now."""
        return "finished" if self.finished else self.plan[self.number].phase

    def act(self, state: Float[Array, "8"]) -> Float[Array, "7"]:
        """The next action; after the last way point the arm stays where it is, gripper open."""
        position = state[:3]
        self._advance(position)
        point = self.plan[min(self.number, len(self.plan) - 1)]
        speed = self.route.speed
        action = np.zeros(7)
        wanted = (point.target - position) / GAIN
        if point.along_a_line:
            wanted = wanted * min(1.0, speed / np.abs(wanted).max())
        action[:3] = np.clip(wanted, -speed, speed)
        action[6] = point.gripper
        return action

    def _advance(self, position: Float[Array, "3"]) -> None:
        while not self.finished:
            point = self.plan[self.number]
            if np.abs(point.target - position).max() > point.tolerance:
                return
            if self._waited < point.wait:
                self._waited += 1
                return
            self.number, self._waited = self.number + 1, 0
