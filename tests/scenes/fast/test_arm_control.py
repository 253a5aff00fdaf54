"""The lean path of the arm's control against robosuite's own, bit for bit."""

import numpy as np
import pytest
from robosuite.environments.base import MujocoEnv

from lerobot_policy_quantile.scenes.contract import make_scene
from lerobot_policy_quantile.scenes.fast.arm_control import controls, is_lean, lean_control
from tests.scenes.rollouts import KEY, SIZE, random_actions


@pytest.fixture(scope="module")
def built():
    scene = make_scene("embedded", camera_size=SIZE)
    yield scene
    scene.close()


@pytest.fixture
def scene(built):
    built.reset(*KEY)
    return built


def test_lean_control_sets_the_torques_and_the_fingers_that_robosuite_sets(scene):
    robot, ctrl = scene.world.robots[0], scene.world.sim.data.ctrl
    low, high = scene.world.sim.model.actuator_ctrlrange.T
    inside = np.zeros(len(ctrl))
    assert is_lean(robot)
    for action in random_actions(40):
        scene.step(action)
        ramp = robot.gripper.current_action
        robot.control(action)
        expected, ramped = ctrl.copy(), robot.gripper.current_action
        ctrl[:] = 0
        robot.gripper.current_action = ramp
        lean_control(robot, action)()
        assert ctrl.tobytes() == expected.tobytes()
        assert robot.gripper.current_action.tobytes() == ramped.tobytes()
        inside += (low < expected) & (expected < high)
    assert (inside > 5).all()  # at its limit a torque would hide a difference


@pytest.mark.parametrize("name", ["uncoupling", "interpolator_pos", "interpolator_ori"])
def test_another_kind_of_control_is_not_lean(scene, monkeypatch, name):
    robot = scene.world.robots[0]
    monkeypatch.setattr(robot.controller, name, False if name == "uncoupling" else object())
    assert not is_lean(robot)


def test_scattered_actuators_and_another_gripper_are_not_lean(scene, monkeypatch):
    robot = scene.world.robots[0]
    with monkeypatch.context() as other:
        other.setattr(robot, "_ref_joint_actuator_indexes", [0, 1, 2, 3, 4, 6, 5])
        assert not is_lean(robot)
    with monkeypatch.context() as other:
        other.setattr(robot, "gripper", object())
        assert not is_lean(robot)
    assert is_lean(robot)


def test_what_is_not_lean_equals_robosuite_as_well(scene):
    """Force and torque coupled, which the lean path does not know."""

    def end(step):
        scene.reset(*KEY)
        scene.world.robots[0].controller.uncoupling = False
        for action in random_actions(4):
            step(action)
        return scene.simulator_state()

    plain = end(lambda action: MujocoEnv.step(scene.world, action))
    assert end(scene.step).tobytes() == plain.tobytes()


@pytest.mark.parametrize("substeps", [1, 2, 3, 25])
def test_every_substep_has_its_control(scene, substeps):
    robot = scene.world.robots[0]
    assert len(list(controls(robot, np.zeros(7), substeps))) == substeps
