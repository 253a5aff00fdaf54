"""A scripted expert that follows way points: it picks the object up and puts it into the goal.

It uses privileged positions (`Scene.layout`). The control law is proportional and saturated,
a = clip((target - end effector) / 0.05, -speed, speed). A way point is reached when the end effector is near it, not
after a fixed time, so that a memoryless policy can imitate it without stalling. Only the gripper waits.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.scenes.contract import Array, Layout
from lerobot_policy_quantile.util.names import nearest

GAIN = 0.05
"""Metres of distance that saturate a full-scale command; OSC_POSE moves at most this far per step."""

GRIPPER_STEPS = 10
OPEN, CLOSED = -1.0, 1.0

SIDES = {"left": 1.0, "straight": 0.0, "right": -1.0}
"""As seen from the start towards the object."""


@dataclass(frozen=True)
class Route:
    """Path of the approach from the start to the object (metres; speed as a fraction of full scale)."""

    side: str = "straight"
    offset: float = 0.11
    height: float = 0.18  # of the approach, above the ground
    speed: float = 0.33
    detour_speed: float = 0.25  # on the way out

    def __post_init__(self) -> None:
        if self.side not in SIDES:
            raise ValueError(f"side must be one of {', '.join(SIDES)}; got {self.side!r}{nearest(self.side, SIDES)}")
        for name in ("speed", "detour_speed"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie in (0, 1]; got {getattr(self, name)}")
        if not 0 <= self.offset <= 0.25:
            raise ValueError(f"offset must lie in [0, 0.25] metres; got {self.offset}")
        if not 0 < self.height <= 0.5:
            raise ValueError(f"height must lie in (0, 0.5] metres; got {self.height}")

    def around_obstacle(self) -> "Route":
        """The same side for the obstacle scene: further out and lower (the paper's figures), and slower."""
        return replace(self, offset=0.15, height=0.12, detour_speed=0.2)


@dataclass(frozen=True)
class Grasp:
    """How an object is grasped (metres). The palm is 39 mm above the point between the finger tips: tall objects
    are grasped near their top.
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
"""Grasps by kind of object; other kinds use the default."""


@dataclass(frozen=True)
class WayPoint:
    """Go there with this gripper command until nearer than `tolerance`, then wait `wait` steps."""

    phase: str
    target: Float[Array, "3"]
    gripper: float
    tolerance: float
    wait: int = 0
    along_a_line: bool = False  # the axes saturate together instead of each by itself

    def near(self, position: Float[Array, "3"]) -> bool:
        """Whether the end effector is there."""
        return bool(np.abs(self.target - position).max() <= self.tolerance)

    def action(self, position: Float[Array, "3"], speed: float) -> Float[Array, "7"]:
        """One step on the way there."""
        wanted = (self.target - position) / GAIN
        if self.along_a_line:
            wanted = wanted * min(1.0, speed / np.abs(wanted).max())
        return np.array([*np.clip(wanted, -speed, speed), 0.0, 0.0, 0.0, self.gripper])


def way_points(layout: Layout, route: Route, grasp: Grasp) -> list[WayPoint]:
    """Approach, descend, grasp, lift, transport, place, release, retreat."""
    ground = layout.ground
    high, carry, touch = ground + route.height, ground + grasp.lift, layout.object[2] + grasp.above_centre

    def above(place: Float[Array, "3"], height: float) -> Float[Array, "3"]:
        return np.array([place[0], place[1], height])

    thing, goal = layout.object, layout.goal
    return [
        WayPoint("approach", above(thing, high), OPEN, 0.008),
        WayPoint("descend", above(thing, touch), OPEN, 0.006),
        WayPoint("grasp", above(thing, touch), CLOSED, np.inf, GRIPPER_STEPS),
        WayPoint("lift", above(thing, carry), CLOSED, 0.02),
        WayPoint("transport", above(goal, carry), CLOSED, 0.012),
        WayPoint("place", above(goal, ground + grasp.release), CLOSED, 0.012),
        WayPoint("release", above(goal, ground + grasp.release), OPEN, np.inf, GRIPPER_STEPS),
        WayPoint("retreat", above(goal, carry), OPEN, 0.02),
    ]


class WaypointExpert:
    """The expert of one episode: construct it after `reset`, call `act` once per step."""

    def __init__(self, layout: Layout, route: Route) -> None:
        self.grasp = GRASPS.get(layout.object_kind, Grasp())
        self.plan = way_points(layout, route, self.grasp)
        self.route = route
        self.number = 0
        self._waited = 0

    @property
    def finished(self) -> bool:
        """Whether every way point has been reached."""
        return self.number == len(self.plan)

    @property
    def phase(self) -> str:
        """What the expert is doing now."""
        return "finished" if self.finished else self.plan[self.number].phase

    def act(self, state: Float[Array, "8"]) -> Float[Array, "7"]:
        """The next action; after the last way point the arm stays where it is, gripper open."""
        position = state[:3]
        self._advance(position)
        return self.plan[min(self.number, len(self.plan) - 1)].action(position, self.route.speed)

    def _advance(self, position: Float[Array, "3"]) -> None:
        while not self.finished:
            point = self.plan[self.number]
            if not point.near(position):
                return
            if self._waited < point.wait:
                self._waited += 1
                return
            self.number, self._waited = self.number + 1, 0
