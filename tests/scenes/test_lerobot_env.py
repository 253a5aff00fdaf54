"""The embedded scene behind LeRobot's environment registry."""

import subprocess
import sys

import numpy as np
import pytest

from lerobot_policy_quantile.scenes.contract import make_scene


@pytest.fixture(scope="module")
def vector_env():
    from lerobot.envs.factory import make_env, make_env_config

    import lerobot_policy_quantile.scenes.lerobot_env  # noqa: F401

    envs = make_env(make_env_config("embedded", camera_size=32, episode_length=30), n_envs=2)
    yield envs["embedded"][0]
    envs["embedded"][0].close()


@pytest.mark.slow
def test_lerobots_commands_know_the_environment():
    """Through LeRobot's own plugin discovery, in a process of its own."""
    code = "from lerobot.utils.import_utils import register_third_party_plugins\n"
    code += "register_third_party_plugins()\n"
    code += "from lerobot.envs.configs import EnvConfig\n"
    code += "print('embedded' in EnvConfig.get_known_choices())\n"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.split() == ["True"], result.stderr


@pytest.mark.slow
def test_parallel_environments_share_the_initial_states(vector_env):
    observation, info = vector_env.reset(seed=[1, 2], options={"lerobot_new_rollout": True})
    assert vector_env.call("_max_episode_steps") == (30, 30)
    assert vector_env.call("task_description")[0] == "pick up the can and place it in the basket"
    assert observation["pixels"]["image"].shape == (2, 32, 32, 3)
    scene = make_scene("embedded", camera_size=32)
    for number in range(2):
        scene.reset(0, number, number + 1)
        np.testing.assert_array_equal(observation["agent_pos"][number], scene.state())
        np.testing.assert_array_equal(observation["pixels"]["image2"][number], scene.frames()["wrist"])
    action = np.array([0.5, 0, 0, 0, 0, 0, -1], dtype=np.float32)
    observation, *_, info = vector_env.step(np.stack([action, action]))
    scene.step(action, observe=True)
    np.testing.assert_array_equal(observation["agent_pos"][1], scene.state())
    np.testing.assert_array_equal(observation["pixels"]["image"][1], scene.frames()["external"])
    assert info["is_success"].tolist() == [False, False]
    scene.close()


def test_a_policy_made_for_it_sees_what_a_dataset_holds():
    from lerobot.envs.configs import EnvConfig
    from lerobot.envs.utils import env_to_policy_features

    import lerobot_policy_quantile.scenes.lerobot_env  # noqa: F401

    features = env_to_policy_features(EnvConfig.get_choice_class("embedded")())
    assert {name: feature.shape for name, feature in features.items()} == {
        "action": (7,),
        "observation.state": (8,),
        "observation.images.image": (3, 256, 256),
        "observation.images.image2": (3, 256, 256),
    }
