"""Drawers, knobs and doors: which part of the motion comes next follows from the joint and from where the hand is."""

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.scenes.experts.geometry import (
    OPEN,
    SHUT,
    UP,
    Array,
    Pose,
    about_z,
    from_axes,
    half_turned,
    hand_frame,
)
from lerobot_policy_quantile.scenes.experts.motion import RESTING, WIDE, Motion
from lerobot_policy_quantile.scenes.experts.plan import drawer_names
from lerobot_policy_quantile.scenes.experts.view import View

HOLDING = 0.02
"""Metres per second up to which fingers around something may creep."""
PULLED, PULLED_ENOUGH = -0.150, -0.142
"""Joint value at which pulling ends, and at which a drawer that was let go of counts as open (LIBERO: -0.14)."""
PUSHED = 0.001
TURNED, TURNED_ENOUGH = 0.6, 0.52
"""The same for a stove's knob (LIBERO: 0.5)."""
DOOR_SHUT, DOOR_SHUT_ENOUGH = -0.003, -0.005
KNOB = np.array([-0.008, 0.0, 0.043])
"""Where the knob is taken, from its axis, turning with it."""
DOOR_ARM, DOOR_HALF = 0.20, 0.035
"""Where the microwave's door is pushed, from its hinge; half its thickness, with the fingers'."""

OVEN_DEPTH = 0.17
"""How far in front of the middle of a microwave a leaning hand is free of it."""


class Fixtures:
    """Moves what is hinged or slides. No memory."""

    def __init__(self, view: View, motion: Motion) -> None:
        self.view, self.motion = view, motion
        self.phase = ""

    # -- drawers

    def is_open(self, region: str, *, enough: float = PULLED_ENOUGH) -> bool:
        """Whether a drawer is out, and no longer held."""
        joint, _, _ = self.view.drawer(region)
        held = any(self.view.touching(drawer_names(region)[0]))
        return joint < PULLED or (joint < enough and not held)

    def pull(self, region: str) -> Float[Array, "7"]:
        """One action of opening a drawer: a horizontal hand that closes vertically around the handle."""
        _, out, handle = self.view.drawer(region)
        goal = self._nearer(Pose(handle, from_axes(-out, UP)))
        name, _ = drawer_names(region)
        if self._encloses and self.view.hand.near(goal, 0.03, 0.3):
            self.phase = "pull"
            return self.motion.go(goal.moved(0.05 * out), SHUT, 0.8)
        return self._seize(goal, name, lead=0.07)

    def is_pushed(self, region: str) -> bool:
        """Whether a drawer is shut."""
        joint, _, _ = self.view.drawer(region)
        return joint > PUSHED or (joint > 0 and not any(self.view.touching(drawer_names(region)[0])))

    def push(self, region: str) -> Float[Array, "7"]:
        """One action of shutting a drawer: shut fingers, leaning, from the front."""
        _, out, handle = self.view.drawer(region)
        hand = self.view.hand
        rotation = hand_frame(float(np.arctan2(-out[1], -out[0])), 0.8)
        goal = self._nearer(Pose(handle, rotation))
        offset = hand.position - handle
        before, high = float(offset @ out), float(offset[2])
        beside = float(np.linalg.norm(offset - before * out - high * UP))
        if before > -0.03 and abs(high) < 0.04 and beside < 0.04 and hand.angle_to(goal) < 0.3:
            self.phase = "push"
            return self.motion.go(goal.moved(-0.06 * out), SHUT, 0.7)
        if 0.03 < before < 0.14 and beside < 0.04 and high < 0.14:
            self.phase = "down before the drawer"
            return self.motion.go(goal.moved(0.06 * out), SHUT)
        self.phase = "to the drawer's front"
        return self.motion.over(goal.moved(0.09 * out + 0.10 * UP), SHUT)

    # -- knobs

    def is_turned(self, stove: str) -> bool:
        """Whether a stove is on, and its knob no longer held."""
        joint = self.view.joint(f"{stove}_button")
        return joint > TURNED or (joint > TURNED_ENOUGH and not any(self.view.touching(stove)))

    def turn(self, stove: str) -> Float[Array, "7"]:
        """One action of turning a knob: taken from above, the wrist ahead of it."""
        joint = self.view.joint(f"{stove}_button")
        point = self.view.anchor(f"{stove}_button") + about_z(joint) @ KNOB
        goal = Pose(point, hand_frame(joint))
        if self._encloses and self.view.hand.near(goal, 0.02, 0.9):
            self.phase = "turn"
            return self.motion.go(Pose(point, hand_frame(joint + 0.5)), SHUT)
        return self._seize(goal, stove, lead=0.08)

    # -- doors

    def is_shut(self, oven: str) -> bool:
        """Whether a microwave is shut."""
        joint = self.view.joint(f"{oven}_microjoint")
        return joint > DOOR_SHUT or (joint > DOOR_SHUT_ENOUGH and not any(self.view.touching(oven)))

    def shut_door(self, oven: str) -> Float[Array, "7"]:
        """One action of shutting a microwave: shut fingers on the outside of its door, ahead of its angle."""
        joint, hinge = self.view.joint(f"{oven}_microjoint"), self.view.anchor(f"{oven}_microjoint")
        hand = self.view.hand
        along, normal = about_z(joint) @ np.array([1.0, 0, 0]), about_z(joint) @ np.array([0.0, -1, 0])
        offset = hand.position - hinge
        arm, before, high = float(offset @ along), float(offset @ normal), float(offset[2]) - 0.02
        rotation = self._door_pose(hinge, max(joint, -1.2), 0.0).rotation
        if before < 0 and (leaving := self._out_of(oven)) is not None:
            return leaving
        if before > 0.0 and 0.10 < arm < 0.30 and abs(high) < 0.06:
            self.phase = "push the door"
            return self.motion.go(Pose(self._door_pose(hinge, joint + 0.25, -0.02).position, rotation), SHUT)
        if before > 0.06 and 0.12 < arm < 0.28 and high < 0.18:
            self.phase = "down beside the door"
            return self.motion.go(Pose(self._door_pose(hinge, joint, 0.08).position, rotation), SHUT)
        self.phase = "to the door's outside"
        return self.motion.over(Pose(self._door_pose(hinge, joint, 0.10).position + 0.14 * UP, rotation), SHUT)

    def _out_of(self, oven: str) -> Float[Array, "7"] | None:
        """Open and straight back while the hand is inside; None when it is not."""
        low, high = self.view.extent(oven)
        middle, hand = self.view.site(f"{oven}_heating_region"), self.view.hand
        x, y, z = hand.position
        if not (low[0] < x < high[0] and y > middle[1] - OVEN_DEPTH and z < high[2]):
            return None
        self.phase = "out of the oven"
        if self.view.finger < WIDE and self.view.touched:
            return self.motion.stay(OPEN)
        return self.motion.go(hand.moved(np.array([0.0, -0.06, 0.008])), OPEN)

    def _door_pose(self, hinge: Float[Array, "3"], angle: float, before: float) -> Pose:
        along, normal = about_z(angle) @ np.array([1.0, 0, 0]), about_z(angle) @ np.array([0.0, -1, 0])
        point = hinge + DOOR_ARM * along + (DOOR_HALF + before) * normal + 0.02 * UP
        return Pose(point, hand_frame(float(np.arctan2(-normal[1], -normal[0])), 0.5))

    # -- common

    @property
    def _encloses(self) -> bool:
        """Whether the fingers rest at the width of a handle (9 mm) or a knob (13 mm)."""
        return 0.005 < self.view.finger < 0.018 and abs(self.view.finger_speed) < HOLDING

    def _nearer(self, pose: Pose) -> Pose:
        """The hand is symmetric: the one of two wrists that takes less turning."""
        other = Pose(pose.position, half_turned(pose.rotation))
        return min(pose, other, key=self.view.hand.angle_to)

    def _seize(self, goal: Pose, name: str, *, lead: float) -> Float[Array, "7"]:
        """Approach with open fingers, close; open again after closing on nothing."""
        hand, finger = self.view.hand, self.view.finger
        inward = all(self.view.touching(name)) or self.view.finger_speed < -RESTING
        if hand.near(goal, 0.02, 0.25) and inward if finger < WIDE else hand.near(goal, 0.009, 0.12):
            self.phase = "close"
            return self.motion.go(goal, SHUT, 0.3)
        if finger < WIDE:
            self.phase = "open"
            return self.motion.go(hand.moved(0.02 * hand.back), OPEN, 0.4)
        self.phase = "approach"
        return self.motion.approach(goal, OPEN, lead=lead, speed=0.7)
