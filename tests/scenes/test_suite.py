"""Every scene of the registry keeps the contract's promises."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from robosuite.environments.base import MujocoEnv

from lerobot_policy_quantile.scenes.contract import CONTROL_HZ, make_scene, scene_names
from tests.scenes.rollouts import (
    KEY,
    OBSERVED,
    SIZE,
    STEPS,
    drive,
    marked,
    random_actions,
    rollout,
)

ROOT = Path(__file__).parents[2]


def start_other_process(name: str) -> subprocess.Popen[str]:
    """It works while this process does, and draws pictures without threads."""
    command = [sys.executable, "-m", "tests.scenes.rollouts", name]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "LP_NUM_THREADS": "0"},
    )


QUICK = "embedded", "libero_object"
"""The other suites differ in files, not in code."""


@pytest.fixture(scope="module", params=[marked(name, slow=name not in QUICK) for name in scene_names()])
def scene_and_twin(request):
    twin = start_other_process(request.param)
    built = make_scene(request.param, camera_size=SIZE)
    yield built, twin
    built.close()
    twin.kill()
    twin.communicate()


@pytest.fixture(scope="module")
def scene(scene_and_twin):
    return scene_and_twin[0]


@pytest.fixture(scope="module")
def trace(scene):
    return rollout(scene)


def test_the_specification_holds(scene, trace):
    assert (scene.action_dim, scene.state_dim, scene.control_hz) == (7, 8, 20)
    assert scene.instruction
    assert scene.instruction == scene.instruction.lower()
    assert {"mujoco", "robosuite", "assets"} <= set(scene.versions)
    assert scene.state_count(KEY[0]) == 50
    assert scene.limit > STEPS
    for frames in (trace.start_frames, *trace.frames.values()):
        assert tuple(frames) == scene.cameras
        for frame in frames.values():
            assert frame.shape == (SIZE, SIZE, 3)
            assert frame.dtype == np.uint8
            assert frame.std() > 5  # something is in the picture


def test_observations_are_finite_and_time_runs_at_the_control_rate(trace):
    assert np.isfinite(trace.states).all()
    assert np.isfinite(trace.simulator_states).all()
    times = np.array([state[0] for state in trace.simulator_states])
    np.testing.assert_allclose(np.diff(times), 1 / CONTROL_HZ, atol=1e-9)


def test_the_actions_moved_the_robot_and_the_frames_differ(trace):
    assert np.abs(trace.states[-1] - trace.states[0]).max() > 0.01
    assert (trace.frames[OBSERVED[0]]["wrist"] != trace.frames[OBSERVED[1]]["wrist"]).any()


def test_an_episode_in_between_changes_nothing(scene, trace):
    rollout(scene, (0, 2, 8))
    assert rollout(scene).digest() == trace.digest()


def test_frames_on_demand_equal_rendering_every_step_of_robosuite(scene, trace):
    scene.reset(*KEY)

    def plain_step(action, _):
        scene.world.announced = True
        MujocoEnv.step(scene.world, action)

    every = drive(scene, random_actions(), plain_step)
    assert every.digest() == trace.digest()


def test_frames_that_were_not_announced_are_refused(scene, trace):
    scene.step(np.zeros(7))
    with pytest.raises(ValueError, match="frames must be announced"):
        scene.frames()


@pytest.mark.bad_input
def test_a_task_and_an_index_that_do_not_exist_are_refused(scene):
    with pytest.raises(ValueError, match="task must lie in"):
        scene.reset(scene.task_count, 0, 0)
    with pytest.raises(ValueError, match=r"index must lie in 0\.\.49; got 50"):
        scene.reset(0, 50, 0)


def test_another_process_sees_the_same(scene_and_twin, trace):
    """Hash of the same key and actions, by another process."""
    _, twin = scene_and_twin
    output, errors = twin.communicate()
    assert twin.returncode == 0, errors
    assert output.splitlines()[-1] == trace.digest()
