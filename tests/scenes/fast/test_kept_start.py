"""A start that is copied back is the start that was built, to the last bit, whatever happened in between."""

import numpy as np
import pytest

from lerobot_policy_quantile.scenes.contract import make_scene
from lerobot_policy_quantile.scenes.fast import kept_start
from tests.scenes.rollouts import SIZE, marked, rollout

STUDY = (0, 0, 20260922)
CRASH = np.array([0.1, -1.0, -0.4, 0.3, 0.2, -0.1, 1.0])


@pytest.fixture(scope="module", params=[marked("embedded"), marked("libero_object")])
def built(request):
    """A scene and the digest of the study's episode from a start that was built."""
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


def test_a_kept_start_gives_the_bits_of_a_built_one_even_after_contacts(built):
    scene, digest = built
    kept = scene.kept
    scene.reset(*STUDY)
    assert crash(scene) > 0
    assert rollout(scene, STUDY).digest() == digest
    assert scene.kept is kept  # it was copied back, not built


def test_another_key_is_built_and_forgets_the_old_start(built):
    scene, _ = built
    kept = scene.kept
    scene.reset(0, 1, 3)
    assert scene.kept is not kept
    assert not kept.fits(scene.world, STUDY)
    scene.reset(*STUDY)  # for the tests that follow


@pytest.mark.parametrize("forgotten", ["gripper", "data"])
def test_each_part_is_needed(built, forgotten, monkeypatch):
    """The twin: leave one part out and the episode after a crash is another one."""
    scene, digest = built
    scene.reset(*STUDY)
    if forgotten == "data":
        monkeypatch.setattr(kept_start, "copy", lambda _: scene.world.sim.data._data)
    else:
        gripper = scene.world.robots[0].gripper
        memories = tuple(pair for pair in scene.kept.memories if pair[0] is not gripper)
        assert len(memories) < len(scene.kept.memories)
        monkeypatch.setitem(vars(scene.kept), "memories", memories)
    crash(scene)
    assert rollout(scene, STUDY).digest() != digest
