"""Each corruption does what its name says, the same for the same generator, more at higher severities."""

import numpy as np
import pytest

from lerobot_policy_quantile.scenes.libero.image_noise import KINDS, SEVERITIES, corrupt

NUMBERS = range(1, 1 + len(KINDS) * SEVERITIES)
PICTURE = np.kron(np.random.default_rng(0).integers(0, 256, (8, 8, 3)), np.ones((8, 8, 1), int)).astype(np.uint8)


def noisy(number, seed=0, picture=PICTURE):
    return corrupt(picture, number, np.random.default_rng(seed))


def distance(number):
    return float(np.mean([np.abs(noisy(number, s).astype(float) - PICTURE).mean() for s in range(3)]))


@pytest.mark.parametrize("number", NUMBERS)
def test_every_number_changes_the_picture_and_repeats(number):
    once = noisy(number)
    assert (once.shape, once.dtype) == (PICTURE.shape, np.uint8)
    assert not np.array_equal(once, PICTURE)
    np.testing.assert_array_equal(once, noisy(number))
    original = PICTURE.copy()
    noisy(number)
    np.testing.assert_array_equal(PICTURE, original)


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_severity_ten_is_worse_than_one(kind):
    assert distance(kind * SEVERITIES + SEVERITIES) > 1.2 * distance(kind * SEVERITIES + 1)


@pytest.mark.parametrize("kind", ["motion", "fog", "glass"])
def test_what_is_drawn_comes_from_the_generator(kind):
    number = KINDS.index(kind) * SEVERITIES + 5
    assert not np.array_equal(noisy(number, 0), noisy(number, 1))
    state = np.random.get_state()[1].copy()
    noisy(number)
    np.testing.assert_array_equal(np.random.get_state()[1], state)


def test_blurs_leave_an_even_picture_alone_and_fog_does_not():
    even = np.full((64, 64, 3), 100, np.uint8)
    for kind in ("motion", "gaussian", "zoom", "glass"):
        assert np.abs(noisy(KINDS.index(kind) * SEVERITIES + 7, picture=even).astype(int) - 100).max() <= 2
    assert noisy(KINDS.index("fog") * SEVERITIES + 7, picture=even).std() > 5


def test_motion_is_a_trail_on_one_side():
    line = np.zeros((64, 64, 3), np.uint8)
    line[:, 32] = 255
    trail = noisy(5, picture=line).astype(float).sum(axis=(0, 2))
    assert trail[:32].sum() > 5 * trail[33:].sum()


def test_zoom_keeps_the_centre():
    point = np.zeros((65, 65, 3), np.uint8)
    point[32, 32] = 255
    far = noisy(30, picture=point)[..., 0]
    assert max(abs(place - 32) for place in np.unravel_index(far.argmax(), far.shape)) <= 1


@pytest.mark.bad_input
@pytest.mark.parametrize("number", [0, 51, -3])
def test_other_numbers_are_refused(number):
    with pytest.raises(ValueError, match=r"noise must lie in 1\.\.50"):
        noisy(number)
