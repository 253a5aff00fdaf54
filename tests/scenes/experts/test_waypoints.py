import numpy as np
import pytest

from lerobot_policy_quantile.scenes.contract import Layout, make_scene
from lerobot_policy_quantile.scenes.experts.detour import Detour, expert_for, way_points
from lerobot_policy_quantile.scenes.experts.reflex import Moment, reflex
from lerobot_policy_quantile.scenes.experts.waypoints import Grasp, Route, WaypointExpert


@pytest.fixture(scope="module")
def obstacle_scene():
    scene = make_scene("embedded", obstacle=True, camera_size=32)
    yield scene
    scene.close()


@pytest.fixture(scope="module")
def free_scene():
    scene = make_scene("embedded", camera_size=32)
    yield scene
    scene.close()


def run(scene, route, limit=480):
    """Success, actions used, steps with a contact, and the largest distance from the straight line before the grasp."""
    scene.reset(0, 0, 0)
    start = scene.state()[:2]
    ahead = (scene.layout().object[:2] - start) / np.linalg.norm(scene.layout().object[:2] - start)
    expert = expert_for(scene, route)
    touched, aside, steps, grasped = 0, 0.0, 0, False
    while steps < limit and not expert.finished:
        action = expert.act(scene.state())
        scene.step(action)
        steps += 1
        touched += scene.contacts() > 0
        grasped |= action[6] > 0
        if not grasped:
            offset = scene.state()[:2] - start
            aside = max(aside, ahead[0] * offset[1] - ahead[1] * offset[0], key=abs)
    return scene.success(), steps, touched, aside


@pytest.mark.parametrize(("side", "sign"), [("left", 1), ("right", -1)])
def test_a_detour_passes_the_obstacle_without_touching_it(obstacle_scene, side, sign):
    success, steps, touched, aside = run(obstacle_scene, Route(side).around_obstacle())
    assert success
    assert touched == 0
    assert 390 <= steps <= 450
    assert 0.13 <= sign * aside <= 0.16


def test_the_straight_way_ends_at_the_obstacle(obstacle_scene):
    success, _, touched, _ = run(obstacle_scene, Route("straight").around_obstacle(), limit=250)
    assert not success
    assert touched > 100


@pytest.mark.parametrize(("side", "sign"), [("left", 1), ("right", -1)])
def test_a_free_detour_is_eleven_centimetres_wide(free_scene, side, sign):
    success, steps, _, aside = run(free_scene, Route(side))
    assert success
    assert 300 <= steps <= 340
    assert 0.095 <= sign * aside <= 0.12


def test_beyond_the_detour_the_reflex_drives(free_scene):
    free_scene.reset(0, 0, 0)
    detour, steps = Detour(free_scene, Route("left")), 0
    while not detour.finished and steps < 400:
        state = free_scene.state()
        action = detour.act(state)
        if not detour.out:
            np.testing.assert_array_equal(action, reflex(Moment.of(state, free_scene.layout())))
        free_scene.step(action)
        steps += 1
    assert not detour.out
    assert detour.finished


def test_straight_ahead_there_is_no_detour(free_scene):
    free_scene.reset(0, 0, 0)
    assert isinstance(expert_for(free_scene, Route()), WaypointExpert)
    assert isinstance(expert_for(free_scene, Route("right")), Detour)


@pytest.mark.parametrize(("obstacle", "counts"), [(np.zeros(3), (2, 2)), (None, (1, 0))])
def test_left_and_right_mirror_each_other(obstacle, counts):
    layout = Layout(np.array([0.0, -0.2, 0.0]), "can", np.array([0.0, 0.2, 0.0]), 0.0, obstacle)
    start = np.array([0.0, 0.0, 0.2])
    left, right = (way_points(layout, start, Route(side), Grasp()) for side in ("left", "right"))
    mirror = np.array([-1, 1, 1])
    for some, others, count in zip(left, right, counts, strict=True):
        assert len(some) == len(others) == count
        for one, other in zip(some, others, strict=True):
            np.testing.assert_allclose(one.target, mirror * other.target, atol=1e-12)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "wrong", [{"side": "up"}, {"speed": 0.0}, {"detour_speed": 2.0}, {"offset": 0.5}, {"height": 0.0}]
)
def test_a_route_that_cannot_be_driven_is_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must"):
        Route(**{"side": "left", **wrong})
