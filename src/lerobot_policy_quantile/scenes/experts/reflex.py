"""A memoryless scripted expert: the action is a function of the current positions.

A policy that sees one time step at a time can imitate it from any state, also off the demonstrated paths. Control law
and grasps are those of `waypoints`; instead of counting waiting steps it reads the finger positions, and instead of
passing way points it descends inside a funnel above its target.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.scenes.contract import Array, Layout
from lerobot_policy_quantile.scenes.experts.waypoints import CLOSED, GAIN, GRASPS, OPEN, Grasp
from lerobot_policy_quantile.util.names import nearest

SPEED = 0.33
APPROACH_HEIGHT = 0.18  # above the ground, as in `waypoints.Route`
OPEN_FINGER = 0.0385
"""Position of one finger joint when the gripper is open (metres)."""

GRIPPED_FINGER = {
    "can": 0.0245,
    "milk carton": 0.0198,
    "loaf of bread": 0.0188,
    "cereal box": 0.0155,
    "alphabet_soup": 0.0315,
    "cream_cheese": 0.0211,
    "salad_dressing": 0.0186,
    "bbq_sauce": 0.0182,
    "ketchup": 0.0168,
    "tomato_sauce": 0.0311,
    "butter": 0.0194,
    "milk": 0.0265,
    "chocolate_pudding": 0.0231,
    "orange_juice": 0.0265,
}
"""The same when the fingers hold an object, as measured in the simulator."""

HELD_FINGER = {
    "can": 0.025,
    "milk carton": 0.020,
    "loaf of bread": 0.0205,
    "cereal box": 0.0205,
    "alphabet_soup": 0.0325,
    "cream_cheese": 0.0221,
    "salad_dressing": 0.0196,
    "bbq_sauce": 0.0192,
    "ketchup": 0.0178,
    "tomato_sauce": 0.0321,
    "butter": 0.0204,
    "milk": 0.0275,
    "chocolate_pudding": 0.0241,
    "orange_juice": 0.0275,
}
"""The widest they are then, to a millimetre or so."""

_RESTING = {
    "can": 0.040,
    "milk carton": 0.061,
    "loaf of bread": 0.023,
    "cereal box": 0.075,
    "alphabet_soup": 0.038,
    "cream_cheese": 0.009,
    "salad_dressing": 0.073,
    "bbq_sauce": 0.055,
    "ketchup": 0.072,
    "tomato_sauce": 0.038,
    "butter": 0.009,
    "milk": 0.070,
    "chocolate_pudding": 0.013,
    "orange_juice": 0.070,
}
"""Height of an object's centre above the ground it stands on."""

RIM = 0.10  # the basket's height above the ground
BASKET = 0.075  # a centre nearer than this to the basket's, on both axes, is inside


@dataclass(frozen=True)
class Moment:
    """Input of the reflex expert (metres, world coordinates)."""

    hand: Float[Array, "3"]
    finger: float
    object: Float[Array, "3"]
    object_kind: str
    goal: Float[Array, "3"]  # the basket's centre on the ground

    @classmethod
    def of(cls, state: Float[Array, "8"], layout: Layout) -> "Moment":
        """A moment of a scene."""
        goal = np.array([*layout.goal[:2], layout.ground])
        return cls(state[:3], finger_of(state), layout.object, layout.object_kind, goal)

    @property
    def grasp(self) -> Grasp:
        """Grasp of this kind of object."""
        return GRASPS.get(self.object_kind, Grasp())

    @property
    def touch(self) -> float:
        """Height of the hand when the fingers close."""
        return float(self.object[2]) + self.grasp.above_centre

    @property
    def between_fingers(self) -> bool:
        """Whether the object is where the fingers can hold it."""
        aside = np.abs(self.object - self.hand)[:2].max()
        return bool(aside < 0.02 and abs(self.hand[2] - self.touch) < 0.025)

    @property
    def held(self) -> bool:
        """Whether the fingers hold it."""
        return self.between_fingers and self.finger < HELD_FINGER[self.object_kind] + 0.002

    @property
    def delivered(self) -> bool:
        """Whether it lies in the basket."""
        aside = np.abs(self.object - self.goal)[:2].max()
        return bool(aside < BASKET and self.object[2] < self.goal[2] + RIM and not self.held)


def finger_of(state: Float[Array, "8"]) -> float:
    """Position of one finger joint, from a robot state."""
    return float(state[6] - state[7]) / 2


def require_known(kind: str) -> None:
    """Raise ValueError for an object whose grip has not been measured."""
    if kind not in HELD_FINGER:
        raise ValueError(f"object must be one of {', '.join(HELD_FINGER)}; got {kind!r}{nearest(kind, HELD_FINGER)}")


def reflex(now: Moment) -> Float[Array, "7"]:
    """The action for the current positions."""
    if now.delivered:
        return _retreat(now)
    if now.between_fingers and _ready_to_release(now):
        return _go(now, now.hand, OPEN)
    if now.held:
        return _carry(now)
    if _ready_to_close(now):
        return _go(now, np.array([*now.object[:2], now.touch]), CLOSED)
    if now.finger < HELD_FINGER[now.object_kind] - 0.005 or (now.finger < 0.030 and not now.between_fingers):
        return _go(now, np.array([*now.hand[:2], max(now.hand[2], now.touch)]), OPEN)
    return _approach(now)


def _go(now: Moment, target: Float[Array, "3"], gripper: float, *, sideways: float = 1.0) -> Float[Array, "7"]:
    action = np.zeros(7)
    action[:3] = np.clip((target - now.hand) / GAIN, -SPEED, SPEED)
    action[:2] *= sideways
    action[6] = gripper
    return action


def _retreat(now: Moment) -> Float[Array, "7"]:
    height = now.goal[2] + now.grasp.lift if now.finger > 0.030 else now.hand[2]
    return _go(now, np.array([*now.hand[:2], height]), OPEN)


def _ready_to_release(now: Moment) -> bool:
    aside = np.abs(now.goal - now.hand)[:2].max()
    return bool(aside < 0.02 and now.hand[2] < now.goal[2] + now.grasp.release + 0.015)


def _ready_to_close(now: Moment) -> bool:
    aside, above = np.abs(now.object - now.hand)[:2].max(), abs(now.hand[2] - now.touch)
    closing = now.finger < OPEN_FINGER - 0.002
    return bool((aside < 0.008 and above < 0.008) or (closing and aside < 0.015 and above < 0.015))


def _carry(now: Moment) -> Float[Array, "7"]:
    """Up first, then over the basket, then down inside a funnel; slowly while the grip is young."""
    ground, grasp = now.goal[2], now.grasp
    distance = np.linalg.norm((now.goal - now.hand)[:2])
    share = np.clip((distance - 0.012) / 0.03, 0.0, 1.0)
    height = ground + grasp.release + share * (grasp.lift - grasp.release)
    clear = np.clip((now.hand[2] - (ground + grasp.lift - 0.07)) / 0.05, 0.0, 1.0) if distance > 0.05 else 1.0
    action = _go(now, np.array([*now.goal[:2], height]), CLOSED, sideways=float(clear))
    young = now.object[2] - ground < _RESTING[now.object_kind] + 0.015
    action[2] = min(action[2], 0.12) if young else action[2]
    return action


def _approach(now: Moment) -> Float[Array, "7"]:
    """Rise, go above the object, descend inside a funnel."""
    distance = np.linalg.norm((now.object - now.hand)[:2])
    share = np.clip((distance - 0.006) / 0.04, 0.0, 1.0)
    height = now.touch + share * (now.goal[2] + APPROACH_HEIGHT - now.touch)
    clear = np.clip((now.hand[2] - now.touch - 0.03) / 0.05, 0.0, 1.0) if distance > 0.05 else 1.0
    return _go(now, np.array([*now.object[:2], height]), OPEN, sideways=float(clear))
