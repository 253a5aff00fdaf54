"""Any arrangement of the embedded scene without rebuilding it: things, basket and arm are put where they shall be.

For pretraining only: an episode of the contract begins with `Scene.reset`. The basket is a static body and is moved in
the model; the arm is bent by inverse kinematics until the hand is where it shall be, fingers pointing down.
"""

from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.scenes.contract import Array, Frames
from lerobot_policy_quantile.scenes.embedded import (
    NAMES,
    TABLE_TOP,
    EmbeddedScene,
    Start,
    instruction_for,
)
from lerobot_policy_quantile.scenes.physics import WRIST_CAMERA

_DAMPING = 1e-4
_ROUNDS = 40


@dataclass(frozen=True)
class View:
    """One moment: what a policy would see, and what only an expert knows."""

    frames: Frames | None
    state: Float[Array, "8"]
    things: Float[Array, "4 3"]  # in the order of `NAMES`
    goal: Float[Array, "3"]
    wrist_place: Float[Array, "3"]
    wrist_turn: Float[Array, "3 3"]  # columns: the camera's axes in the world


class Stage:
    """The embedded scene, rearranged at will."""

    def __init__(self, camera_size: int) -> None:
        self.scene = EmbeddedScene("embedded", obstacle=False, camera_size=camera_size)
        self.scene.reset(0, 0, 0)
        self.world: Any = self.scene.world
        sim, robot = self.world.sim, self.world.robots[0]
        self._model, self._data, self._robot = sim.model._model, sim.data._data, robot
        self._basket = mujoco.mj_name2id(self._model, mujoco.mjtObj.mjOBJ_BODY, "basket")
        self._wrist = mujoco.mj_name2id(self._model, mujoco.mjtObj.mjOBJ_CAMERA, WRIST_CAMERA)
        self._joints = np.array(robot._ref_joint_pos_indexes)
        self._velocities = np.array(robot._ref_joint_vel_indexes)
        self._fingers = np.array(robot._ref_gripper_joint_pos_indexes)
        self._rest, self._open = np.array(self._data.qpos), np.array(robot.gripper.current_action)
        site = self._data.site_xmat[robot.eef_site_id]
        self._down = np.array(site).reshape(3, 3)  # of the plain layout, which points straight down

    def close(self) -> None:
        """Free the simulator."""
        self.scene.close()

    def arrange(self, start: Start, target: str) -> None:
        """Things and basket in their places, the arm in the start's joints, everything at rest."""
        self.world.start, self.world.target = start, target
        self.scene.instruction = instruction_for(target)
        self._model.body_pos[self._basket, :2] = start.basket
        self._forget()
        self._data.qpos[self._joints] = start.joints
        for name, (x, y, yaw) in start.objects.items():
            self.put(name, np.array([x, y, TABLE_TOP - self.world.things[name].bottom_offset[2]]), yaw)
        self.forward()

    def _forget(self) -> None:
        """The plain layout's positions, and nothing left of what happened before."""
        mujoco.mj_resetData(self._model, self._data)
        self._data.qpos[:] = self._rest
        self._robot.gripper.current_action = self._open.copy()

    def put(self, name: str, place: Float[Array, "3"], yaw: float) -> None:
        """A thing's centre at a place, upright."""
        quaternion = [np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)]
        self.world.sim.data.set_joint_qpos(self.world.things[name].joints[0], [*place, *quaternion])

    def set_fingers(self, finger: float) -> None:
        """Both fingers at the same distance from the middle."""
        self._data.qpos[self._fingers] = [finger, -finger]

    def reach(self, place: Float[Array, "3"], turn: Float[Array, "3"]) -> bool:
        """Bend the arm until the hand is at `place`, turned from straight down by a small axis-angle; did it?"""
        wanted = _rotation(turn) @ self._down
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
        """How far any two things are inside each other (metres)."""
        count = self._data.ncon
        return float(-self._data.contact.dist[:count].min()) if count else 0.0

    def look(self, *, pictures: bool = True) -> View:
        """The present arrangement, as it is."""
        self.world.announced = pictures
        self.world._look()
        return self.view()

    def view(self) -> View:
        """The last snapshot: of `look`, or of the last step."""
        world = self.world
        return View(
            frames=world.snapshot_frames,
            state=np.array(world.snapshot_state),
            things=np.stack([world.snapshot_things[name] for name in NAMES]),
            goal=np.array([*world.start.basket, TABLE_TOP]),
            wrist_place=np.array(world.snapshot_wrist[0]),
            wrist_turn=np.array(world.snapshot_wrist[1]),
        )


def _rotation(turn: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """Rodrigues' formula."""
    angle = np.linalg.norm(turn)
    if angle < 1e-9:
        return np.eye(3)
    x, y, z = turn / angle
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.asarray(np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross)
