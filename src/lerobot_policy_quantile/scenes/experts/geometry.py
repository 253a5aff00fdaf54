"""Poses of the hand, the law that moves it, and how deep boxes lie in one another. Metres and radians, world frame.

The hand's own frame: x is the axis along which the fingers close, z points out of the palm. Without yaw or tilt the
hand points down and closes along the world's y.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]
else:
    Array = np.ndarray

UP = np.array([0.0, 0.0, 1.0])
OPEN, SHUT = -1.0, 1.0
STEP = 0.05
"""Metres that a full-scale command moves the hand; OSC_POSE's limit."""
TURN = 0.5
"""Radians that a full-scale command turns it."""
GAIN = 1.4
TURN_LIMIT = 0.5


def about_z(angle: float) -> Float[Array, "3 3"]:
    """A turn about the vertical."""
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


def hand_frame(yaw: float = 0.0, tilt: float = 0.0) -> Float[Array, "3 3"]:
    """A hand that points down, turned by `yaw`, its fingers leaning towards the turned x axis by `tilt`."""
    closing, ahead = about_z(yaw) @ np.array([0.0, 1, 0]), about_z(yaw) @ np.array([1.0, 0, 0])
    return from_axes(np.sin(tilt) * ahead - np.cos(tilt) * UP, closing)


def from_axes(approach: Float[Array, "3"], closing: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """The hand that points along `approach` and closes along `closing`."""
    return np.stack([closing, np.cross(approach, closing), approach], axis=1)


def yaw_and_tilt(rotation: Float[Array, "3 3"]) -> tuple[float, float]:
    """The `hand_frame` nearest to a hand: its angles."""
    closing, approach = rotation[:, 0], rotation[:, 2]
    yaw = float(np.arctan2(-closing[0], closing[1]))
    ahead = about_z(yaw) @ np.array([1.0, 0, 0])
    return yaw, float(np.arctan2(approach @ ahead, -approach[2]))


def half_turned(rotation: Float[Array, "3 3"]) -> Float[Array, "3 3"]:
    """The same hand with its two fingers exchanged."""
    turned: Float[Array, "3 3"] = rotation * np.array([-1.0, -1.0, 1.0])
    return turned


def nearest_half_turn(angle: float) -> float:
    """The closing axis has no sign: the same angle within a quarter turn."""
    return float((angle + np.pi / 2) % np.pi - np.pi / 2)


def rotation_vector(rotation: Float[Array, "3 3"]) -> Float[Array, "3"]:
    """Axis times angle."""
    axis = np.array([rotation[2, 1] - rotation[1, 2], rotation[0, 2] - rotation[2, 0], rotation[1, 0] - rotation[0, 1]])
    sine, cosine = np.linalg.norm(axis) / 2, (np.trace(rotation) - 1) / 2
    return axis / 2 if sine < 1e-6 else axis / (2 * sine) * np.arctan2(sine, cosine)


@dataclass(frozen=True)
class Pose:
    """Where the point between the finger tips is, and how the hand is turned."""

    position: Float[Array, "3"]
    rotation: Float[Array, "3 3"]

    @property
    def back(self) -> Float[Array, "3"]:
        """Away from what the fingers point at."""
        return -self.rotation[:, 2]

    def moved(self, offset: Float[Array, "3"]) -> "Pose":
        """The same hand elsewhere."""
        return Pose(self.position + offset, self.rotation)

    def angle_to(self, other: "Pose") -> float:
        """Radians between two hands."""
        return float(np.linalg.norm(rotation_vector(other.rotation @ self.rotation.T)))

    def near(self, other: "Pose", distance: float, angle: float) -> bool:
        """Whether two poses agree, along each axis and in rotation."""
        apart = np.abs(self.position - other.position).max()
        return bool(apart < distance and self.angle_to(other) < angle)

    def beside(self, goal: "Pose") -> float:
        """Distance from the line on which the goal's fingers come in; a turn counts 3 cm per radian."""
        offset = self.position - goal.position
        return float(np.linalg.norm(offset - goal.back * (offset @ goal.back)) + 0.03 * self.angle_to(goal))


def steer(hand: Pose, goal: Pose, gripper: float, speed: float) -> Float[Array, "7"]:
    """One action towards a pose: proportional, straight, at most `speed` of full scale."""
    move = (goal.position - hand.position) / STEP * GAIN
    turn = rotation_vector(goal.rotation @ hand.rotation.T) / TURN * GAIN
    return np.array([*_shortened(move, speed), *_shortened(turn, min(TURN_LIMIT, speed)), gripper])


def _shortened(vector: Float[Array, "3"], largest: float) -> Float[Array, "3"]:
    return vector * min(1.0, largest / max(float(np.abs(vector).max()), 1e-9))


@dataclass(frozen=True)
class Boxes:
    """n boxes: centres, axes as columns, half sizes, and whose they are (a number of the view's)."""

    centre: Float[Array, "n 3"]
    axes: Float[Array, "n 3 3"]
    half: Float[Array, "n 3"]
    owner: Float[Array, "n"]

    def chosen(self, which: Array) -> "Boxes":
        """Some of them."""
        return Boxes(self.centre[which], self.axes[which], self.half[which], self.owner[which])

    def spans(self) -> tuple[Float[Array, "n 3"], Float[Array, "n 3"]]:
        """Lowest and highest corner of each, along the world's axes."""
        reach = np.einsum("nij,nj->ni", np.abs(self.axes), self.half)
        return self.centre - reach, self.centre + reach

    def depth_of(
        self, centre: Float[Array, "3"], axes: Float[Array, "3 3"], half: Float[Array, "3"]
    ) -> Float[Array, "n"]:
        """How deep another box lies in each of them, by separating axes; negative is a gap."""
        mine = np.broadcast_to(axes, self.axes.shape)
        crosses = np.cross(mine[:, :, :, None], self.axes[:, :, None, :], axis=1).reshape(-1, 3, 9)
        tested = np.concatenate([mine, self.axes, crosses], axis=2)
        length = np.linalg.norm(tested, axis=1)
        real = length > 1e-3  # parallel edges have no cross product
        tested = tested / np.where(real, length, 1.0)[:, None]
        apart = np.abs(np.einsum("ni,nik->nk", self.centre - centre, tested))
        own = np.einsum("nik,i->nk", np.abs(np.einsum("nji,njk->nik", mine, tested)), half)
        others = np.einsum("nik,ni->nk", np.abs(np.einsum("nji,njk->nik", self.axes, tested)), self.half)
        gap: Float[Array, "n"] = np.where(real, apart - own - others, -9.0).max(axis=1)
        return -gap


HAND_BOXES = (
    (np.array([0.002, 0, -0.13]), np.array([0.103, 0.033, 0.10])),
    (np.array([0.050, 0, -0.03]), np.array([0.0105, 0.010, 0.037])),
    (np.array([-0.050, 0, -0.03]), np.array([0.0105, 0.010, 0.037])),
)
"""The open hand with the way it comes, in its own frame: palm, two fingers; centre and half sizes."""


def hand_overlap(pose: Pose, boxes: Boxes, taken: int) -> float:
    """How deep (m, summed over palm and fingers) the open hand at a pose lies in boxes; the palm may be in `taken`.

    Things that are not `taken` count 3 mm early.
    """
    near = np.linalg.norm(boxes.centre - pose.position, axis=1) < 0.3 + np.linalg.norm(boxes.half, axis=1)
    around, deep = boxes.chosen(near), 0.0
    if not near.any():
        return 0.0
    own = around.owner == taken
    for number, (centre, half) in enumerate(HAND_BOXES):
        depth = around.depth_of(pose.position + pose.rotation @ centre, pose.rotation, half)
        depth = depth + np.where(own, 0.0, 0.003)
        deep += max(0.0, float(np.where(own & (number == 0), 0.0, depth).max()))
    return deep
