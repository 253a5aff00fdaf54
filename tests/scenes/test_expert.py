import numpy as np
import pytest

from lerobot_policy_quantile.scenes.contract import Layout, make_scene
from lerobot_policy_quantile.scenes.expert import Expert, Route, way_points


@pytest.fixture(scope="module")
def obstacle_scene():
    scene = make_scene("embedded", obstacle=True, camera_size=32)
    yield scene
    scene.close()


def run(scene, route, limit=450):
    """Success, actions used, steps with a contact, and the largest distance from the straight line."""
    scene.reset(0, 0, 0)
    start = scene.state()[:2]
    ahead = (scene.layout().object[:2] - start) / np.linalg.norm(scene.layout().object[:2] - start)
    expert = Expert(scene.layout(), scene.state(), route)
    touched, aside, steps = 0, 0.0, 0
    while steps < limit and not expert.finished:
        scene.step(expert.act(scene.state()))
        steps += 1
        touched += scene.contacts() > 0
        if expert.phase == "approach":
            offset = scene.state()[:2] - start
            aside = max(aside, ahead[0] * offset[1] - ahead[1] * offset[0], key=abs)
    return scene.success(), steps, touched, aside


@pytest.mark.parametrize(("side", "sign"), [("left", 1), ("right", -1)])
def test_a_detour_passes_the_obstacle_without_touching_it(obstacle_scene, side, sign):
    success, steps, touched, aside = run(obstacle_scene, Route(side).around_obstacle())
    assert success
    assert touched == 0
    assert 350 <= steps <= 430
    assert 0.13 <= sign * aside <= 0.16


def test_the_straight_way_ends_at_the_obstacle(obstacle_scene):
    success, _, touched, _ = run(obstacle_scene, Route("straight").around_obstacle(), limit=250)
    assert not success
    assert touched > 100


@pytest.mark.parametrize(("side", "sign"), [("left", 1), ("right", -1)])
def test_a_free_detour_is_eleven_centimetres_wide(side, sign):
    scene = make_scene("embedded", camera_size=32)
    success, steps, _, aside = run(scene, Route(side))
    scene.close()
    assert success
    assert 250 <= steps <= 330
    assert 0.095 <= sign * aside <= 0.12


def test_left_and_right_mirror_each_other():
    layout = Layout(np.array([0.0, -0.2, 0.0]), "can", np.array([0.0, 0.2, 0.0]), 0.0, np.zeros(3))
    start = np.array([0.0, 0.0, 0.2])
    left, right = (
        way_points(layout, start, Route(side), Expert(layout, start, Route(side)).grasp) for side in ("left", "right")
    )
    mirror = np.array([-1, 1, 1])
    assert len(left) == len(right) == 12
    for one, other in zip(left, right, strict=True):
        np.testing.assert_allclose(one.target, mirror * other.target, atol=1e-12)


@pytest.mark.bad_input
@pytest.mark.parametrize("wrong", [{"side": "up"}, {"speed": 0.0}, {"offset": 0.5}, {"height": 0.0}])
def test_a_route_that_cannot_be_driven_is_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must"):
        Route(**{"side": "left", **wrong})
