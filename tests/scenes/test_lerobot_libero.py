"""LeRobot's own LIBERO environment, driven with the same actions, goes the same way."""

import numpy as np
import pytest
import torch

from lerobot_policy_quantile.scenes.contract import make_scene
from lerobot_policy_quantile.scenes.experts.waypoints import Route, WaypointExpert
from lerobot_policy_quantile.scenes.libero.assets import import_libero
from tests.scenes.rollouts import random_actions

pytestmark = [pytest.mark.libero, pytest.mark.slow]
SIZE = 64
INDEX, SEED = 3, 11


@pytest.fixture(scope="module")
def theirs():
    import_libero()
    from lerobot.envs.libero import LiberoEnv, _get_suite

    env = LiberoEnv(
        task_suite=_get_suite("libero_object"),
        task_id=0,
        task_suite_name="libero_object",
        obs_type="pixels_agent_pos",
        observation_width=SIZE,
        observation_height=SIZE,
        episode_index=INDEX,
    )
    yield env
    env.close()


@pytest.fixture(scope="module")
def ours():
    scene = make_scene("libero_object", camera_size=SIZE)
    yield scene
    scene.close()


def as_lerobot_sees_it(observation):
    """State and pictures after LeRobot's own processing of a LIBERO observation."""
    from lerobot.envs.utils import preprocess_observation
    from lerobot.processor import LiberoProcessorStep

    batched = {
        "pixels": {name: picture[None] for name, picture in observation["pixels"].items()},
        "robot_state": {
            part: {name: value[None] for name, value in values.items()}
            for part, values in observation["robot_state"].items()
        },
    }
    return LiberoProcessorStep().observation(preprocess_observation(batched))


def require_equal_views(scene, observation):
    seen = as_lerobot_sees_it(observation)
    # LeRobot turns the quaternion into an axis-angle in float32; near half a turn that costs a few digits.
    np.testing.assert_allclose(scene.state(), seen["observation.state"][0], atol=2e-3)
    np.testing.assert_array_equal(scene.state()[:3].astype(np.float32), seen["observation.state"][0, :3])
    np.testing.assert_array_equal(scene.state()[6:].astype(np.float32), seen["observation.state"][0, 6:])
    for camera, key in (("external", "image"), ("wrist", "image2")):
        theirs = (seen[f"observation.images.{key}"][0] * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
        np.testing.assert_array_equal(scene.frames()[camera], theirs)


def test_same_start_same_states_same_pictures_same_success(theirs, ours):
    theirs.init_state_id = INDEX
    observation, _ = theirs.reset(seed=SEED)
    ours.reset(0, INDEX, SEED)
    assert ours.instruction == theirs.task_description == "pick up the alphabet soup and place it in the basket"
    require_equal_views(ours, observation)
    for number, action in enumerate(random_actions(20)):
        # robosuite draws into whichever context came last, and finds our meshes there.
        theirs._env.env.sim._render_context_offscreen.gl_ctx.make_current()
        observation, _, _, _, info = theirs.step(action)
        ours.step(action, observe=number % 10 == 9)
        np.testing.assert_array_equal(ours.simulator_state(), theirs._env.get_sim_state())
        assert ours.success() == info["is_success"]
        if number % 10 == 9:
            require_equal_views(ours, observation)


def test_a_whole_episode_of_the_expert_succeeds_at_the_same_step(theirs, ours):
    theirs.init_state_id = INDEX
    theirs.reset(seed=SEED)
    for observable in theirs._env.env._observables.values():
        observable.set_enabled(False)  # pictures were compared above; rendering 300 steps takes a minute
    ours.reset(0, INDEX, SEED)
    expert = WaypointExpert(ours.layout(), Route())
    succeeded = []
    while not expert.finished:
        action = expert.act(ours.state())
        ours.step(action)
        theirs._env.env.step(action)
        succeeded.append((ours.success(), theirs._env.check_success()))
    assert all(mine == their for mine, their in succeeded)
    assert succeeded[-1] == (True, True)
    np.testing.assert_array_equal(ours.simulator_state(), theirs._env.get_sim_state())
