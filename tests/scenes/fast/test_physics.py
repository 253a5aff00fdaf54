from importlib.metadata import version

import numpy as np
import pytest

from lerobot_policy_quantile.scenes.contract import make_scene
from lerobot_policy_quantile.scenes.fast import physics


def test_mujoco_is_the_release_that_all_results_were_made_with():
    assert version("mujoco") == physics.MUJOCO_VERSION == "3.3.2"


def test_another_mujoco_is_refused(monkeypatch):
    monkeypatch.setattr(physics, "version", lambda _: "3.8.1")
    with pytest.raises(ValueError, match=r"mujoco must be 3\.3\.2; found 3\.8\.1"):
        make_scene("embedded")


def test_a_scene_without_an_episode_says_what_to_call():
    with pytest.raises(ValueError, match="call reset"):
        make_scene("embedded").state()


def test_the_global_generator_is_given_back_as_it_was():
    np.random.seed(5)
    expected = np.random.random()
    np.random.seed(5)
    with physics.seeded(9):
        inside = np.random.random()
    assert np.random.random() == expected
    assert inside != expected
