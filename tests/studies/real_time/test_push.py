"""The pushed scene: the object moves once, as the key says, and an undisturbed step is the same as ever."""

import numpy as np
import pytest

from lerobot_policy_quantile.adapters.factory import SceneFactory
from lerobot_policy_quantile.studies.real_time.push import PUSH, WHEN, PushedScene

pytestmark = pytest.mark.slow
STILL = np.array([0.0] * 6 + [-1.0])


def test_the_object_is_pushed_once_at_a_step_of_the_keys_own():
    scene = SceneFactory(camera_size=32).scene("embedded")
    pushed = PushedScene(scene)
    try:
        found = []
        for index in (0, 1, 0):
            pushed.reset(0, index, 0)
            places = [scene.layout().object[:2].copy()]
            for _ in range(WHEN[1]):
                pushed.step(STILL)
                places.append(scene.layout().object[:2].copy())
            at = int(pushed.notes()["pushed_at"])
            assert WHEN[0] <= at < WHEN[1]
            moved = np.linalg.norm(np.diff(places, axis=0), axis=1)
            assert moved.argmax() == at
            assert moved.max() == pytest.approx(PUSH, rel=0.2)
            found.append((at, places[-1].tolist()))
    finally:
        scene.close()
    assert found[0] == found[2] != found[1]
