"""robosuite's operational space control over the substeps of a control step, with its arrays bound once.

robosuite looks up actuators, limits and gains in every substep, and makes new arrays for all it reads. Within a control
step these stay the same, so all substeps but the first and the last take a lean path. It performs the same floating
point operations in the same order (the same compiled functions and BLAS calls, on arrays of the same memory order) on
buffers that are bound once: the torques are the same to the last bit. The first substep is robosuite's own, because it
sets the goal; so is the last, because it leaves in robosuite's objects what robosuite leaves there.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float
from robosuite.controllers.osc import OperationalSpaceController
from robosuite.models.grippers import PandaGripper
from robosuite.utils.control_utils import nullspace_torques, opspace_matrices, orientation_error
from robosuite.utils.numba import jit_decorator

from lerobot_policy_quantile.scenes.contract import Array

Control = Callable[[], None]
"""Sets the torques of one substep."""


def controls(robot: Any, action: Float[Array, "7"], substeps: int) -> Iterator[Control]:
    """What sets the torques in each substep of a control step; each must be called before the next is asked for."""
    yield lambda: robot.control(action, policy_step=True)  # all that `_pre_action` does for one arm
    hold = held_control(robot, action)
    between = lean_control(robot, action) if is_lean(robot) else hold
    for _ in range(substeps - 2):
        yield between
    if substeps > 1:
        yield hold


def held_control(robot: Any, action: Float[Array, "7"]) -> Control:
    """What `robot.control` does between policy steps, with limits and actuators looked up once."""
    data, controller, gripper = robot.sim.data._data, robot.controller, robot.gripper
    arm, (low, high) = robot._ref_joint_actuator_indexes, robot.torque_limits
    fingers, bias, weight = _fingers(robot)
    command = action[controller.control_dim :]

    def hold() -> None:
        robot.torques = np.clip(controller.run_controller(), low, high)
        data.ctrl[fingers] = bias + weight * gripper.format_action(command)
        data.ctrl[arm] = robot.torques

    return hold


def is_lean(robot: Any) -> bool:
    """Whether the lean path supports this robot and controller."""
    controller = robot.controller
    indexes = (
        controller.qpos_index,
        controller.qvel_index,
        robot._ref_joint_actuator_indexes,
        robot._ref_joint_gripper_actuator_indexes,
    )
    return (
        type(controller) is OperationalSpaceController
        and type(robot.gripper) is PandaGripper
        and controller.uncoupling
        and controller.interpolator_pos is None
        and controller.interpolator_ori is None
        and all(isinstance(together(each), slice) for each in indexes)
    )


def lean_control(robot: Any, action: Float[Array, "7"]) -> Control:
    """The same torques as `held_control` sets, for a goal that is set and a robot that `is_lean`."""
    model, data = robot.sim.model._model, robot.sim.data._data
    torques, grip = _LeanController(robot.controller).torques, _lean_grip(robot, action)
    arm, (low, high) = data.ctrl[together(robot._ref_joint_actuator_indexes)], robot.torque_limits

    def hold() -> None:
        mujoco.mj_fwdConstraint(model, data)  # robosuite solves once more before it reads; the rest has not changed
        np.minimum(np.maximum(torques(), low), high, out=arm)
        grip()

    return hold


def _lean_grip(robot: Any, action: Float[Array, "7"]) -> Control:
    """The Panda gripper's ramp, which moves by the same small step in every substep."""
    gripper = robot.gripper
    fingers, bias, weight = _fingers(robot)
    ctrl = robot.sim.data._data.ctrl[together(fingers)]
    step = np.array([-1.0, 1.0]) * gripper.speed * np.sign(action[robot.controller.control_dim :])
    low, high = np.full(2, -1.0), np.full(2, 1.0)

    def grip() -> None:
        gripper.current_action = np.minimum(np.maximum(gripper.current_action + step, low), high)
        np.add(bias, weight * gripper.current_action, out=ctrl)

    return grip


class _LeanController:
    """robosuite's `run_controller` with every array that it reads or writes bound once, for one control step."""

    def __init__(self, controller: Any) -> None:
        model, data = controller.sim.model._model, controller.sim.data._data
        site, joints = controller.sim.model.site_name2id(controller.eef_name), together(controller.qvel_index)
        self.model, self.data, self.site = model, data, site
        self.inertia_entries, self.velocities, self.gravity = data.qM, data.qvel, data.qfrc_bias[joints]
        self.goal = controller.goal_pos, controller.goal_ori, controller.kp, controller.kd
        self.hand = data.site_xpos[site], data.site_xmat[site].reshape(3, 3)
        self.posture = controller.initial_joint, data.qpos[together(controller.qpos_index)], data.qvel[joints]
        self.first, count = int(controller.qvel_index[0]), len(controller.qvel_index)
        self.jacobian, self.inertia = np.zeros((6, model.nv)), np.zeros((model.nv, model.nv))
        self.moving, self.turning = self.jacobian[:3], self.jacobian[3:]
        self.hand_velocity, self.desired, self.wrench = np.zeros((3, 6))
        # Columns first where robosuite's are: sums of products keep their order, hence their last bits.
        self.arm_jacobian = np.zeros((6, count), order="F")
        self.mass_position, self.mass_rotation = np.zeros((3, 3), order="F"), np.zeros((3, 3), order="F")
        self.to_posture, self.result = np.zeros((2, count))

    def torques(self) -> Float[Array, "joint"]:
        """The torques for the simulator's present state; the array is used again by the next call."""
        mujoco.mj_jacSite(self.model, self.data, self.moving, self.turning, self.site)
        mujoco.mj_fullM(self.model, self.inertia, self.inertia_entries)
        np.matmul(self.moving, self.velocities, out=self.hand_velocity[:3])
        np.matmul(self.turning, self.velocities, out=self.hand_velocity[3:])
        _desired_wrench(*self.goal, *self.hand, self.hand_velocity, self.desired)
        outputs = self.arm_jacobian, self.mass_position, self.mass_rotation, self.to_posture
        _matrices(self.first, self.jacobian, self.inertia, *self.posture, *outputs)
        # numpy and numba may bring different BLAS libraries: a product stays with the one that robosuite asks.
        np.dot(self.mass_position, self.desired[:3], out=self.wrench[:3])
        np.dot(self.mass_rotation, self.desired[3:], out=self.wrench[3:])
        np.dot(self.arm_jacobian.T, self.wrench, out=self.result)
        self.result += self.gravity
        self.result += self.to_posture
        return self.result


@jit_decorator  # type: ignore[untyped-decorator]
def _desired_wrench(
    goal_position: Array,
    goal_rotation: Array,
    stiffness: Array,
    damping: Array,
    position: Array,
    rotation: Array,
    velocity: Array,
    wrench: Array,
) -> None:
    """Force and torque that a spring and a damper between hand and goal would exert, written into `wrench`."""
    wrench[:3] = (goal_position - position) * stiffness[:3] + -velocity[:3] * damping[:3]
    twist = orientation_error(goal_rotation, rotation)
    wrench[3:] = twist * stiffness[3:6] + -velocity[3:] * damping[3:6]


@jit_decorator  # type: ignore[untyped-decorator]
def _matrices(
    first: int,
    jacobian: Array,
    inertia: Array,
    rest: Array,
    joints: Array,
    joint_velocities: Array,
    arm_jacobian: Array,
    mass_position: Array,
    mass_rotation: Array,
    to_posture: Array,
) -> None:
    """The arm's part of the Jacobian, the hand's apparent mass, and the torques towards the posture at rest.

    The last four arguments are written. One call instead of two, and no new arrays, which numba returns slowly.
    """
    last = first + len(joints)
    arm_jacobian[:] = jacobian[:, first:last]
    mass = np.asfortranarray(inertia[first:last, first:last])
    position, rotation = np.asfortranarray(arm_jacobian[:3]), np.asfortranarray(arm_jacobian[3:])
    _, mass_position[:], mass_rotation[:], nullspace = opspace_matrices(mass, arm_jacobian, position, rotation)
    to_posture[:] = nullspace_torques(mass, nullspace, rest, joints, joint_velocities)


def _fingers(robot: Any) -> tuple[list[int], Float[Array, "finger"], Float[Array, "finger"]]:
    """The gripper's actuators, and the middle and half the width of their ranges."""
    model = robot.sim.model
    fingers = [model.actuator_name2id(name) for name in robot.gripper.actuators]
    ends = model.actuator_ctrlrange[fingers]
    return fingers, 0.5 * (ends[:, 1] + ends[:, 0]), 0.5 * (ends[:, 1] - ends[:, 0])


@contextmanager
def one_reading(controller: Any) -> Iterator[None]:
    """Within the block, the arm's controller computes one Jacobian instead of four, with the same numbers."""
    sim, joints = controller.sim, together(controller.qvel_index)
    places = together(controller.qpos_index)
    model, data = sim.model._model, sim.data._data
    site = sim.model.site_name2id(controller.eef_name)
    jacobian = np.zeros((6, model.nv))
    position, rotation = jacobian[:3], jacobian[3:]
    inertia = np.zeros((model.nv, model.nv))

    def update(force: bool = False) -> None:
        if not (controller.new_update or force):
            return
        sim.forward()
        mujoco.mj_jacSite(model, data, position, rotation, site)
        mujoco.mj_fullM(model, inertia, data.qM)
        controller.ee_pos = data.site_xpos[site].copy()
        controller.ee_ori_mat = data.site_xmat[site].reshape(3, 3).copy()
        controller.ee_pos_vel, controller.ee_ori_vel = position @ data.qvel, rotation @ data.qvel
        controller.joint_pos, controller.joint_vel = data.qpos[places].copy(), data.qvel[joints].copy()
        # Columns first where robosuite's are: sums of products keep their order, hence their last bits.
        controller.J_pos = np.array(position[:, joints], order="F")
        controller.J_ori = np.array(rotation[:, joints], order="F")
        controller.J_full = np.array(jacobian[:, joints], order="F")
        controller.mass_matrix = np.array(inertia[joints][:, joints], order="F")
        controller.new_update = False

    controller.update = update
    try:
        yield
    finally:
        del controller.update


def together(indexes: Sequence[int]) -> slice | list[int]:
    """The indexes as a slice if they follow one another, which numpy takes many times faster."""
    run = range(indexes[0], indexes[0] + len(indexes))
    return slice(run.start, run.stop) if list(indexes) == list(run) else list(indexes)
