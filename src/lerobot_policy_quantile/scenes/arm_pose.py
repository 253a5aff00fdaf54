"""An arm put where it is wanted, without a motion that leads there: for pretraining only."""

import lerobot_policy_quantile.scenes.simulator  # noqa: F401  before MuJoCo is imported

# isort: split

from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.scenes.contract import Array

_DAMPING = 1e-4
_ROUNDS = 40


class ArmPose:
    """The arm of a robosuite world."""

    def __init__(self, world: Any) -> None:
        sim, robot = world.sim, world.robots[0]
        self._sim, self._robot = sim, robot
        self._model, self._data = sim.model._model, sim.data._data
        self.joints = np.array(robot._ref_joint_pos_indexes)
        """Where MuJoCo's positions have the arm's."""
        self._velocities = np.array(robot._ref_joint_vel_indexes)
        self._fingers = np.array(robot._ref_gripper_joint_pos_indexes)

    @property
    def rotation(self) -> Float[Array, "3 3"]:
        """Of the hand, as it is."""
        return np.array(self._data.site_xmat[self._robot.eef_site_id]).reshape(3, 3)

    def set_joints(self, joints: Float[Array, "7"]) -> None:
        """Set the arm's joints (radians)."""
        self._data.qpos[self.joints] = joints

    def set_fingers(self, finger: float) -> None:
        """Both fingers at the same distance from the middle."""
        self._data.qpos[self._fingers] = [finger, -finger]

    def reach(self, place: Float[Array, "3"], wanted: Float[Array, "3 3"]) -> bool:
        """Inverse kinematics to a place and a rotation of the hand; whether it converged within the joints' limits."""
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
            self._data.qpos[self.joints] += np.clip(jacobian.T @ np.linalg.solve(square, error), -0.3, 0.3)
        return False

    def _within_limits(self) -> bool:
        low, high = self._model.jnt_range[self._robot._ref_joint_indexes].T
        joints = self._data.qpos[self.joints]
        return bool(((joints > low + 0.02) & (joints < high - 0.02)).all())

    def stop(self) -> None:
        """The arm stands still."""
        self._data.qvel[self._velocities] = 0.0

    def forward(self) -> None:
        """Compute everything that follows from the positions; the controller forgets its goals."""
        self._sim.forward()
        controller = self._robot.controller
        controller.update(force=True)
        controller.reset_goal()

    def deepest_contact(self) -> float:
        """Deepest penetration between two objects (metres)."""
        count = self._data.ncon
        return float(-self._data.contact.dist[:count].min()) if count else 0.0


def rotation_of(turn: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """Of an axis-angle, by Rodrigues' formula."""
    angle = np.linalg.norm(turn)
    if angle < 1e-9:
        return np.eye(3)
    x, y, z = turn / angle
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.asarray(np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross)
