"""An expert that takes a detour: way points around the direct path, then the reflex expert.

The base checkpoint was pretrained on the reflex expert. Apart from the detour these demonstrations agree with it, so
fine-tuning only has to learn the detour and keeps aiming, grasping and releasing.
"""

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.scenes.contract import Array, Layout, Scene
from lerobot_policy_quantile.scenes.experts.reflex import Moment, reflex, require_known
from lerobot_policy_quantile.scenes.experts.waypoints import (
    CLOSED,
    GRASPS,
    OPEN,
    SIDES,
    Grasp,
    Route,
    WayPoint,
    WaypointExpert,
)

LEAD = 0.05
"""Metres that a route around the obstacle goes ahead while it swings aside and down: the mean of two such routes runs
into the obstacle.
"""
CLEAR = 0.02
"""Metres below the carrying height from which on the hand may leave sideways, or be done."""


class Detour:
    """The expert of one episode: construct it after `reset`, call `act` once per step."""

    def __init__(self, scene: Scene, route: Route) -> None:
        self.scene, self.route = scene, route
        layout = scene.layout()
        require_known(layout.object_kind)
        self.grasp = GRASPS.get(layout.object_kind, Grasp())
        self.out, self.back = way_points(layout, scene.state()[:3], route, self.grasp)
        self.finished = False
        self._lifted = False

    def act(self, state: Float[Array, "8"]) -> Float[Array, "7"]:
        """The next action; at the end, the retreat of the reflex expert."""
        hand, layout = state[:3], self.scene.layout()
        _drop_reached(self.out, hand)
        if self.out:
            return self.out[0].action(hand, self.route.detour_speed)
        now = Moment.of(state, layout)
        up = bool(hand[2] > layout.ground + self.grasp.lift - CLEAR)
        self._lifted |= now.held and up
        if self._lifted:
            _drop_reached(self.back, hand)
            if self.back:
                return self.back[0].action(hand, self.route.speed)
        self.finished = now.delivered and up
        action = reflex(now)
        if self.back and now.held:
            action[:2] = 0.0  # straight up; the way back also leads around the obstacle
        return action


def expert_for(scene: Scene, route: Route) -> WaypointExpert | Detour:
    """The expert for a route in the scene's current episode."""
    return WaypointExpert(scene.layout(), route) if route.side == "straight" else Detour(scene, route)


def way_points(
    layout: Layout, start: Float[Array, "3"], route: Route, grasp: Grasp
) -> tuple[list[WayPoint], list[WayPoint]]:
    """On the way out, and, where the obstacle stands, on the way to the goal.

    All routes leave the detour beside the object: the reflex expert then approaches from the side, so that the
    demonstrations show lateral as well as forward aiming.
    """
    thing = layout.object
    ahead = (thing - start)[:2] / np.linalg.norm((thing - start)[:2])
    aside = SIDES[route.side] * route.offset * np.array([-ahead[1], ahead[0]])
    high, carry = layout.ground + route.height, layout.ground + grasp.lift

    def at(place: Float[Array, "2"], height: float) -> Float[Array, "3"]:
        return np.array([*(place + aside), height])

    if layout.obstacle is None:
        return [WayPoint("approach", at(thing[:2], high), OPEN, 0.005, along_a_line=True)], []
    return [
        WayPoint("approach", at(start[:2] + LEAD * ahead, high), OPEN, 0.02, along_a_line=True),
        WayPoint("approach", at(thing[:2], high), OPEN, 0.02),
    ], [
        WayPoint("transport", at(thing[:2] - LEAD * ahead, carry), CLOSED, 0.02),
        WayPoint("transport", at(start[:2], carry), CLOSED, 0.02),
    ]


def _drop_reached(points: list[WayPoint], hand: Float[Array, "3"]) -> None:
    while points and points[0].near(hand):
        del points[0]
