"""How the hand travels: over what lies between, around in a bow, and into a funnel above its goal."""

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.scenes.experts.geometry import OPEN, STEP, UP, Array, Pose, hand_frame, steer, yaw_and_tilt
from lerobot_policy_quantile.scenes.experts.style import Style
from lerobot_policy_quantile.scenes.experts.view import View

FUNNEL = 0.03
"""Metres beside its line within which the hand comes in."""
CLEAR = 0.03
"""Metres of the hand above what it passes over."""
LOOK_AHEAD = 0.08
PALM, UNDER_PALM = 0.10, 0.02
"""The palm's half width along the closing axis; metres by which it is above the finger tips, less a centimetre."""
TILTS = (0.0, 0.4, 0.6, 0.8)
"""Leans of the hand that grips and fixtures ask for."""
WIDE = 0.036
"""A finger further out than this counts as open."""

RESTING = 0.004
"""Metres per second below which a finger has stopped."""


class Motion:
    """Moves the hand of one view in one style. No memory: each action follows from the moment."""

    def __init__(self, view: View, style: Style) -> None:
        self.view, self.style = view, style

    def go(self, pose: Pose, gripper: float, speed: float = 1.0) -> Float[Array, "7"]:
        """Straight there."""
        return steer(self.view.hand, pose, gripper, min(speed, self.style.speed))

    def stay(self, gripper: float) -> Float[Array, "7"]:
        """Only the fingers move."""
        return np.array([0.0, 0, 0, 0, 0, 0, gripper])

    def approach(
        self,
        goal: Pose,
        gripper: float = OPEN,
        *,
        taken: str | None = None,
        lead: float = 0.05,
        speed: float = 0.8,
        slack: float = 0.006,
    ) -> Float[Array, "7"]:
        """To a pose: over what lies between to `lead` metres before it, then in, the nearer to its line the further.

        Within `slack` of the line it goes all the way.
        """
        hand = self.view.hand
        beside = hand.beside(goal)
        lead = max(lead, self._palm_room(goal, taken))
        if beside < FUNNEL:
            return self.go(goal.moved(goal.back * float(np.clip(5 * (beside - slack), 0, lead))), gripper, speed)
        return self.over(goal.moved(goal.back * lead), gripper, taken=taken)

    def _palm_room(self, goal: Pose, taken: str | None) -> float:
        """How far before its goal a hand from above must be for its palm to clear what stands beside."""
        if goal.back[2] < 0.7:
            return 0.0
        aside = (PALM + 0.02) * goal.rotation[:, 0]
        top = self.view.top_along(goal.position - aside, goal.position + aside, 0.05, taken)
        return top - UNDER_PALM - float(goal.position[2])

    def over(self, goal: Pose, gripper: float, *, taken: str | None = None) -> Float[Array, "7"]:
        """To a pose that is free above: up first, then across, in the style's bow and height."""
        hand = self.view.hand
        way = (goal.position - hand.position)[:2]
        far = float(np.clip((np.linalg.norm(way) - 0.06) / 0.15, 0, 1))
        soon = self.soon(hand.position, goal.position)
        ahead = self._clear_height(hand.position, soon, taken)
        height = max(goal.position[2], self._clear_height(hand.position, goal.position, taken), ahead)
        height += far * self.style.height + 0.03 * (hand.position[2] < ahead)
        bow = far * self.style.bow * np.array([-way[1], way[0]]) / max(float(np.linalg.norm(way)), 1e-9)
        x, y = goal.position[:2] + bow
        x = max(x, min(goal.position[0], self.view.home[0] - 0.05))  # the arm folds up nearer to the robot
        target = Pose(np.array([x, y, height]), goal.rotation)
        action = self.go(target, gripper)
        return self.held_back(action, (hand.position[2] - ahead + 0.03) / 0.03)

    def _clear_height(self, start: Float[Array, "3"], end: Float[Array, "3"], taken: str | None) -> float:
        """At which the fingers pass over what lies under the way, and the palm over what stands beside it."""
        under = self.view.top_along(start, end, 0.03, taken) + CLEAR
        return max(under, self.view.top_along(start, end, PALM, taken) - UNDER_PALM)

    def held_back(self, action: Float[Array, "7"], share: float) -> Float[Array, "7"]:
        """Sideways only a share of what an action says; for the rest, against the drift of a hand that rises."""
        share = float(np.clip(share, 0, 1))
        brake = np.clip(-2 * self.view.drift[:2] / STEP, -0.5, 0.5)
        action[:2] = share * action[:2] + (1 - share) * brake
        return action

    @staticmethod
    def soon(start: Float[Array, "3"], end: Float[Array, "3"]) -> Float[Array, "3"]:
        """The end, or the point `LOOK_AHEAD` metres towards it: what lies beyond can be cleared on the way."""
        way = (end - start)[:2]
        share = min(1.0, LOOK_AHEAD / max(float(np.linalg.norm(way)), 1e-9))
        return np.array([*(start[:2] + share * way), end[2]])

    def level(self) -> Float[Array, "3 3"]:
        """The present hand without what it sags: same yaw, the nearest lean that is asked for anywhere."""
        yaw, tilt = yaw_and_tilt(self.view.hand.rotation)
        return hand_frame(yaw, min(TILTS, key=lambda known: abs(known - tilt)))

    def rest(self) -> Float[Array, "7"]:
        """Open, back off, and up until things are well below."""
        hand = self.view.hand
        if self.view.finger < WIDE and self.view.finger_speed > RESTING:
            return self.stay(OPEN)
        if (leaving := self.back_off()) is not None:
            return leaving
        height = max(hand.position[2], self.view.top_along(hand.position, hand.position, 0.08) + 0.12)
        return self.go(Pose(np.array([*hand.position[:2], height]), hand.rotation), OPEN)

    @property
    def at_rest(self) -> bool:
        """Whether `rest` has nothing left to do."""
        return bool(np.abs(self.rest()[:3]).max() < 0.3 and self.view.finger > WIDE)

    def back_off(self) -> Float[Array, "7"] | None:
        """A leaning hand that is close to things leaves the way it came; None where there is room."""
        hand = self.view.hand
        _, tilt = yaw_and_tilt(hand.rotation)
        boxes = self.view.boxes
        near = boxes.depth_of(hand.position - 0.02 * hand.back, hand.rotation, np.array([0.06, 0.03, 0.06])).max()
        if abs(tilt) < 0.45 or near < 0:
            return None
        return self.go(hand.moved(0.06 * hand.back + 0.01 * UP), OPEN)
