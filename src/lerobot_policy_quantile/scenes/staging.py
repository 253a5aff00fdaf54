"""Rearranges a scene without rebuilding it: objects, basket and arm are placed anywhere.

For pretraining only; episodes begin with `Scene.reset`. Inverse kinematics moves the hand to its target, fingers
pointing down. Heights are relative to the embedded scene's ground, its table top: scenes with another ground are
shifted, so that one policy can use both.
"""

import lerobot_policy_quantile.scenes.simulator  # noqa: F401  before MuJoCo is imported

# isort: split

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import mujoco
import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.scenes.contract import Array, Frames
from lerobot_policy_quantile.scenes.embedded import NAMES, TABLE_TOP, EmbeddedScene, Start, instruction_for, mixed_start
from lerobot_policy_quantile.scenes.fast.physics import EXTERNAL_CAMERA, WRIST_CAMERA, RobosuiteScene

_DAMPING = 1e-4
_ROUNDS = 40


@dataclass(frozen=True)
class Camera:
    """Position of a camera, and its axes in world coordinates as columns."""

    place: Float[Array, "3"]
    turn: Float[Array, "3 3"]


@dataclass(frozen=True)
class StageView:
    """One time step: what a policy observes, and the privileged positions."""

    frames: Frames | None
    state: Float[Array, "8"]
    kinds: tuple[str, ...]
    things: Float[Array, "kind 3"]  # in the order of `kinds`
    goal: Float[Array, "3"]
    cameras: dict[str, Camera]


class Stage(ABC):
    """A scene whose objects, basket and arm can be placed anywhere."""

    kinds: tuple[str, ...]
    """Objects that an instruction can name."""

    lift: ClassVar[float] = 0.0
    """Metres by which heights are raised, so that the ground is the embedded scene's."""

    def __init__(self, scene: RobosuiteScene, basket: str) -> None:
        self.scene, self.world = scene, scene.world
        sim, robot = self.world.sim, self.world.robots[0]
        self._model, self._data, self._robot = sim.model._model, sim.data._data, robot
        self._basket = mujoco.mj_name2id(self._model, mujoco.mjtObj.mjOBJ_BODY, basket)
        self._cameras = {
            name: mujoco.mj_name2id(self._model, mujoco.mjtObj.mjOBJ_CAMERA, camera)
            for name, camera in (("external", EXTERNAL_CAMERA), ("wrist", WRIST_CAMERA))
        }
        self._joints = np.array(robot._ref_joint_pos_indexes)
        self._velocities = np.array(robot._ref_joint_vel_indexes)
        self._fingers = np.array(robot._ref_gripper_joint_pos_indexes)
        self._rest, self._open = np.array(self._data.qpos), np.array(robot.gripper.current_action)
        self._down = np.array(self._data.site_xmat[robot.eef_site_id]).reshape(3, 3)
        self._up = np.array([0.0, 0.0, self.lift])
        self._noted: tuple[Float[Array, "kind 3"], dict[str, Camera]]
        self.world.noting = self._note

    @abstractmethod
    def shuffle(self, rng: np.random.Generator, kind: str) -> None:
        """Arrange everything at random and at rest, such that this kind can be grasped."""

    @abstractmethod
    def body_of(self, kind: str) -> int:
        """Index of an object's body."""

    @abstractmethod
    def put(self, kind: str, place: Float[Array, "3"], yaw: float) -> None:
        """Place an object upright with its centre at a position."""

    def close(self) -> None:
        """Free the simulator."""
        self.scene.close()

    def position(self, kind: str) -> Float[Array, "3"]:
        """Position of an object's centre."""
        return np.asarray(self._data.xpos[self.body_of(kind)] + self._up)

    @property
    def goal(self) -> Float[Array, "3"]:
        """The basket's centre on the ground."""
        return np.array([*self._data.xpos[self._basket, :2], TABLE_TOP])

    def forget(self) -> None:
        """Reset the simulation to the positions of the first layout."""
        mujoco.mj_resetData(self._model, self._data)
        self._data.qpos[:] = self._rest
        self._robot.gripper.current_action = self._open.copy()

    def set_joints(self, joints: Float[Array, "7"]) -> None:
        """Set the arm's joints (radians)."""
        self._data.qpos[self._joints] = joints

    def set_fingers(self, finger: float) -> None:
        """Both fingers at the same distance from the middle."""
        self._data.qpos[self._fingers] = [finger, -finger]

    def reach(self, place: Float[Array, "3"], turn: Float[Array, "3"]) -> bool:
        """Inverse kinematics to `place`, rotated from straight down by a small axis-angle; whether it converged."""
        wanted, place = _rotation(turn) @ self._down, place - self._up
        positions, rotations = np.zeros((3, self._model.nv)), np.zeros((3, self._model.nv))
        site = self._robot.eef_site_id
        for _ in range(_ROUNDS):
            mujoco.mj_kinematics(self._model, self._data)
            mujoco.mj_comPos(self._model, self._data)
            off = place - self._data.site_xpos[site]
            now = self._data.site_xmat[site].reshape(3, 3)
            twist = 0.5 * sum(np.cross(now[:, axis], wanted[:, axis]) for axis in range(3))
            error = np.concatenate([off, twist])
            if np.abs(error).max() < 2e-4:
                return self._within_limits()
            mujoco.mj_jacSite(self._model, self._data, positions, rotations, site)
            jacobian = np.concatenate([positions, rotations])[:, self._velocities]
            square = jacobian @ jacobian.T + _DAMPING * np.eye(6)
            self._data.qpos[self._joints] += np.clip(jacobian.T @ np.linalg.solve(square, error), -0.3, 0.3)
        return False

    def _within_limits(self) -> bool:
        low, high = self._model.jnt_range[self._robot._ref_joint_indexes].T
        joints = self._data.qpos[self._joints]
        return bool(((joints > low + 0.02) & (joints < high - 0.02)).all())

    def forward(self) -> None:
        """Compute everything that follows from the positions; the controller forgets its goals."""
        self.world.sim.forward()
        controller = self._robot.controller
        controller.update(force=True)
        controller.reset_goal()

    def deepest_contact(self) -> float:
        """Deepest penetration between two objects (metres)."""
        count = self._data.ncon
        return float(-self._data.contact.dist[:count].min()) if count else 0.0

    def look(self, *, pictures: bool = True) -> StageView:
        """Take a snapshot of the present arrangement."""
        self.world.announced = pictures
        self.world._look()
        return self.view()

    def _note(self) -> None:
        """Positions belong to the same instant as state and frames: what is carried moves within a control step."""
        data = self._data
        cameras = {
            name: Camera(data.cam_xpos[number] + self._up, np.array(data.cam_xmat[number]).reshape(3, 3))
            for name, number in self._cameras.items()
        }
        self._noted = np.stack([self.position(kind) for kind in self.kinds]), cameras

    def view(self) -> StageView:
        """The last snapshot: of `look`, or of the last step."""
        things, cameras = self._noted
        state = np.array(self.world.snapshot_state)
        state[2] += self.lift
        return StageView(self.world.snapshot_frames, state, self.kinds, things, self.goal, cameras)


class EmbeddedStage(Stage):
    """The embedded scene; its basket is a static body that is moved in the model."""

    kinds = tuple(NAMES.values())

    def __init__(self, camera_size: int) -> None:
        scene = EmbeddedScene("embedded", obstacle=False, camera_size=camera_size)
        scene.reset(0, 0, 0)
        super().__init__(scene, "basket")
        self._keys = {kind: key for key, kind in NAMES.items()}

    def shuffle(self, rng: np.random.Generator, kind: str) -> None:
        """A mixed layout, drawn as those of tasks 1 to 4 are."""
        self.arrange(mixed_start(rng, self._keys[kind]), kind)

    def arrange(self, start: Start, kind: str) -> None:
        """Place objects, basket and arm as in `start`, everything at rest."""
        self.world.start, self.world.target = start, self._keys[kind]
        self.scene.instruction = instruction_for(self._keys[kind])
        self._model.body_pos[self._basket, :2] = start.basket
        self.forget()
        self.set_joints(start.joints)
        for key, (x, y, yaw) in start.objects.items():
            self.put(NAMES[key], np.array([x, y, TABLE_TOP - self.world.things[key].bottom_offset[2]]), yaw)
        self.forward()

    def body_of(self, kind: str) -> int:
        """Index of an object's body."""
        return int(self.world.sim.model.body_name2id(self.world.things[self._keys[kind]].root_body))

    def put(self, kind: str, place: Float[Array, "3"], yaw: float) -> None:
        """Place an object upright with its centre at a position."""
        joint = self.world.things[self._keys[kind]].joints[0]
        self.world.sim.data.set_joint_qpos(joint, [*place, np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)])


def _rotation(turn: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """Rodrigues' formula."""
    angle = np.linalg.norm(turn)
    if angle < 1e-9:
        return np.eye(3)
    x, y, z = turn / angle
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.asarray(np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross)
