"""Styles and disturbances: drawn from seeds, composable, the label untouched."""

import numpy as np
import pytest

from lerobot_policy_quantile.scenes.experts.disturbance import COLLECTION, Disturbances, Kicks, Misses, Noise
from lerobot_policy_quantile.scenes.experts.style import Style

OPEN = np.array([0.1, 0, 0, 0, 0, 0, -1.0])
SHUT = np.array([0.1, 0, 0, 0, 0, 0, 1.0])


def executed(disturbances, actions, seed=0):
    step = disturbances.begin(seed)
    return np.array([step(action) for action in actions])


def test_a_style_comes_from_its_seed_and_seeds_differ():
    assert Style.draw(3) == Style.draw(3)
    styles = [Style.draw(seed) for seed in range(200)]
    assert len(set(styles)) == 200
    assert 0.35 <= min(s.speed for s in styles) < 0.40
    assert 0.85 < max(s.speed for s in styles) <= 0.90
    assert {s.pause for s in styles} == set(range(9))
    assert min(s.bow for s in styles) < -0.05 < 0.05 < max(s.bow for s in styles)


def test_the_plain_style_has_no_manner():
    plain = Style.plain()
    assert (plain.bow, plain.height, plain.side, plain.pause) == (0, 0, None, 0)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("field", "value"), [("speed", 0.0), ("speed", 1.1), ("bow", 0.2), ("height", -0.1), ("pause", -1)]
)
def test_an_impossible_style_is_refused(field, value):
    with pytest.raises(ValueError, match=f"{field} must .*; got {value}"):
        Style(**{field: value})


def test_without_disturbances_the_label_is_executed():
    np.testing.assert_array_equal(executed(Disturbances(), [OPEN, SHUT]), [OPEN, SHUT])


def test_disturbances_come_from_the_seed_and_stay_in_range():
    actions = [OPEN] * 300
    first = executed(COLLECTION, actions)
    np.testing.assert_array_equal(first, executed(COLLECTION, actions))
    assert (first != executed(COLLECTION, actions, seed=1)).any()
    assert np.abs(first).max() <= 1
    np.testing.assert_array_equal(first[:, 6], -1)
    np.testing.assert_array_equal(actions[0], [0.1, 0, 0, 0, 0, 0, -1.0])


def test_noise_has_the_scale_it_says():
    noise = executed(Disturbances((Noise(0.1, 0.02),)), [OPEN] * 4000) - OPEN
    np.testing.assert_allclose(noise[:, :6].std(axis=0), [0.1] * 3 + [0.02] * 3, rtol=0.1)


def test_a_kick_lasts_its_steps_in_one_direction():
    kicks = executed(Disturbances((Kicks(rate=0.02, size=0.5, steps=6),)), [OPEN] * 500) - OPEN
    pushed = np.linalg.norm(kicks[:, :3], axis=1)
    assert 0 < (pushed > 0).mean() < 0.5
    np.testing.assert_allclose(pushed[pushed > 0], 0.5)
    first = int(np.argmax(pushed > 0))
    np.testing.assert_allclose(kicks[first : first + 6], kicks[first : first + 1].repeat(6, axis=0))


def test_a_miss_draws_the_hand_up_only_while_the_fingers_begin_to_close():
    actions = [OPEN] * 5 + [SHUT] * 20
    missed = executed(Disturbances((Misses(rate=1.0, size=0.7, steps=4),)), actions)
    np.testing.assert_array_equal(missed[:5], [OPEN] * 5)
    assert (missed[5:9, 2] > 0.4).all()
    np.testing.assert_array_equal(missed[9:], [SHUT] * 16)
