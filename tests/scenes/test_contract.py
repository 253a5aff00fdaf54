import numpy as np
import pytest

from lerobot_policy_quantile.scenes import contract


@pytest.mark.bad_input
def test_an_unknown_scene_is_refused_with_the_nearest_name(monkeypatch):
    monkeypatch.setattr(contract, "_SCENES", {"embedded": "nowhere", "libero_object": "nowhere"})
    with pytest.raises(ValueError, match=r"embedded, libero_object, .*; got 'embeded'; did you mean 'embedded'\?"):
        contract.make_scene("embeded")


@pytest.mark.bad_input
def test_a_camera_without_pixels_is_refused(monkeypatch):
    monkeypatch.setattr(contract, "_SCENES", {"embedded": "nowhere"})
    with pytest.raises(ValueError, match="camera_size must be at least 1 pixel; got 0"):
        contract.make_scene("embedded", camera_size=0)


@pytest.mark.bad_input
@pytest.mark.parametrize("action", [np.zeros(6), np.full(7, np.nan)])
def test_an_action_the_simulator_could_not_take_is_refused(action):
    with pytest.raises(ValueError, match="action must"):
        contract.require_action(action)


@pytest.mark.bad_input
def test_an_initial_state_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match=r"index must lie in 0\.\.49; got 50"):
        contract.require_index("index", 50, 50)
