"""A start that is kept is the start that was made, to the last bit, whatever happened in between."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from lerobot_policy_quantile.scenes.contract import make_scene
from lerobot_policy_quantile.scenes.fast import physics
from tests.scenes.rollouts import SIZE, marked, rollout

STUDY = (0, 0, 20260922)
CRASH = np.array([0.1, -1.0, -0.4, 0.3, 0.2, -0.1, 1.0])


@pytest.fixture(scope="module", params=[marked("embedded"), marked("libero_object")])
def built(request):
    """A scene and the digest of the study's episode from a start that was made."""
    scene = make_scene(request.param, obstacle=True, camera_size=SIZE)
    yield scene, rollout(scene, STUDY).digest()
    scene.close()


def crash(scene) -> int:
    """Drive the hand into the box, gripper closing; control steps with a touch."""
    touched = 0
    for _ in range(25):
        scene.step(CRASH)
        touched += scene.contacts() > 0
    return touched


def test_a_kept_start_gives_the_bits_of_a_made_one_even_after_contacts(built):
    scene, digest = built
    kept = scene.starts[STUDY]
    scene.reset(*STUDY)
    assert crash(scene) > 0
    assert rollout(scene, STUDY).digest() == digest
    assert scene.starts[STUDY] is kept  # it was gone back to, not made


def test_a_start_is_kept_as_long_as_its_model(built):
    """The embedded scene builds another model for another index, LIBERO does not."""
    scene, digest = built
    scene.reset(0, 1, 3)
    assert (STUDY in scene.starts) == (scene.name != "embedded")
    assert rollout(scene, STUDY).digest() == digest


def test_pictures_that_were_written_into_do_not_come_back(built):
    scene, digest = built
    scene.reset(*STUDY)
    scene.frames()["external"][:] = 0
    assert rollout(scene, STUDY).digest() == digest


@pytest.mark.parametrize("forgotten", ["gripper", "state"])
def test_each_part_is_needed(built, forgotten, monkeypatch):
    """The twin: leave one part out and the episode after a crash is another one."""
    scene, digest = built
    scene.reset(*STUDY)
    if forgotten == "state":
        monkeypatch.setattr(mujoco, "mj_setState", lambda *_: None)
    else:
        before = scene.starts[STUDY].before
        memory = tuple({} if "current_action" in each else each for each in before.memory)
        assert memory != before.memory
        monkeypatch.setitem(scene.starts, STUDY, replace(scene.starts[STUDY], before=replace(before, memory=memory)))
    crash(scene)
    assert rollout(scene, STUDY).digest() != digest


@pytest.mark.libero
def test_the_start_that_was_not_used_for_longest_makes_room(monkeypatch):
    monkeypatch.setattr(physics, "KEPT_STARTS", 2)
    scene = make_scene("libero_object", camera_size=8)
    for index in (0, 1, 0, 2):
        scene.reset(0, index, 7)
    assert list(scene.starts) == [(0, 0, 7), (0, 2, 7)]
    scene.close()
    assert not scene.starts
