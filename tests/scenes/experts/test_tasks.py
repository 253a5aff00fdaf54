"""The expert for every task, in the simulator: one task per skill, driven past the flag."""

import numpy as np
import pytest

from lerobot_policy_quantile.scenes.contract import make_scene
from lerobot_policy_quantile.scenes.experts.disturbance import COLLECTION
from lerobot_policy_quantile.scenes.experts.drive import drive
from lerobot_policy_quantile.scenes.experts.style import Style
from lerobot_policy_quantile.scenes.experts.tasks import TaskExpert

pytestmark = [pytest.mark.libero, pytest.mark.slow]
STATE = 25

SKILLS = {
    "put into a basket": ("libero_object", 0),
    "put on a plate": ("libero_spatial", 2),
    "pull a drawer": ("libero_goal", 0),
    "drag a plate": ("libero_goal", 5),
    "turn a knob": ("libero_goal", 7),
    "push a drawer": ("libero_10", 3),
    "shut a door": ("libero_10", 9),
}


@pytest.fixture
def scene(request):
    made = make_scene(request.param, camera_size=32)
    yield made
    made.close()


@pytest.mark.parametrize(("scene", "task"), SKILLS.values(), ids=list(SKILLS), indirect=["scene"])
def test_each_skill_solves_its_task_and_leaves_it_solved(scene, task):
    result = drive(scene, (task, STATE, 0))
    assert result.solved_at is not None
    assert result.still_solved


@pytest.mark.parametrize("scene", ["libero_object"], indirect=True)
def test_a_fresh_expert_goes_on_where_another_stopped(scene):
    """What to do follows from the moment: an expert made in the middle of an episode answers the same."""
    scene.reset(1, STATE, 0)
    expert = TaskExpert(scene)
    for step in range(90):
        action = expert.act(scene.state())
        if step % 6 == 0:
            np.testing.assert_allclose(TaskExpert(scene).act(scene.state()), action, atol=0.05, err_msg=expert.phase)
        scene.step(action)


@pytest.mark.parametrize("scene", ["libero_object"], indirect=True)
def test_it_recovers_from_disturbances_in_a_drawn_style(scene):
    labels = []
    result = drive(
        scene,
        (0, STATE, 7),
        style=Style.draw(7),
        disturbances=COLLECTION,
        limit=560,
        seen=lambda a, _: labels.append(a),
    )
    assert result.solved_at is not None
    assert len(labels) == result.steps
    assert np.abs(labels).max() <= 1
    assert np.abs(np.array(labels)[:, :3]).max() <= Style.draw(7).speed + 1e-9


@pytest.mark.parametrize("scene", ["libero_object"], indirect=True)
def test_a_thing_it_cannot_take_is_named(scene, monkeypatch):
    scene.reset(0, STATE, 0)
    monkeypatch.setattr(scene.world.objects_dict["alphabet_soup_1"], "category_name", "kettle")
    with pytest.raises(ValueError, match=r"object must be one the scripted expert can take: .*; got 'kettle'"):
        TaskExpert(scene)
