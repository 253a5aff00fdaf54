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

from lerobot_policy_quantile.scenes.arm_pose import ArmPose, rotation_of
from lerobot_policy_quantile.scenes.contract import Array, Frames
from lerobot_policy_quantile.scenes.embedded import NAMES, TABLE_TOP, EmbeddedScene, Start, instruction_for, mixed_start
from lerobot_policy_quantile.scenes.fast.physics import EXTERNAL_CAMERA, WRIST_CAMERA, RobosuiteScene


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
        self._arm = ArmPose(self.world)
        self._rest, self._open = np.array(self._data.qpos), np.array(robot.gripper.current_action)
        self._down = self._arm.rotation
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
        self._arm.set_joints(joints)

    def set_fingers(self, finger: float) -> None:
        """Both fingers at the same distance from the middle."""
        self._arm.set_fingers(finger)

    def reach(self, place: Float[Array, "3"], turn: Float[Array, "3"]) -> bool:
        """Inverse kinematics to `place`, rotated from straight down by a small axis-angle; whether it converged."""
        return self._arm.reach(place - self._up, rotation_of(turn) @ self._down)

    def forward(self) -> None:
        """Compute everything that follows from the positions; the controller forgets its goals."""
        self._arm.forward()

    def deepest_contact(self) -> float:
        """Deepest penetration between two objects (metres)."""
        return self._arm.deepest_contact()

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
