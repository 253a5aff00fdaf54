"""Hands, the law that moves them, and boxes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lerobot_policy_quantile.scenes.experts.geometry import (
    OPEN,
    STEP,
    Boxes,
    Pose,
    from_axes,
    half_turned,
    hand_frame,
    hand_overlap,
    nearest_half_turn,
    rotation_vector,
    steer,
    yaw_and_tilt,
)

ORIGIN = Pose(np.zeros(3), hand_frame())


def boxes(*centres, half=0.02, owner=2):
    count = len(centres)
    return Boxes(
        np.array(centres, float),
        np.tile(np.eye(3), (count, 1, 1)),
        np.full((count, 3), half),
        np.full(count, owner),
    )


def test_a_plain_hand_points_down_and_closes_along_y():
    np.testing.assert_allclose(hand_frame()[:, 2], [0, 0, -1], atol=1e-12)
    np.testing.assert_allclose(hand_frame()[:, 0], [0, 1, 0], atol=1e-12)


@given(st.floats(-3, 3), st.floats(-1.2, 1.2))
def test_yaw_and_tilt_are_read_back_from_a_hand(yaw, tilt):
    np.testing.assert_allclose(yaw_and_tilt(hand_frame(yaw, tilt)), (yaw, tilt), atol=1e-9)


@given(st.floats(-3, 3), st.floats(-1.2, 1.2))
def test_a_hand_is_a_rotation(yaw, tilt):
    frame = hand_frame(yaw, tilt)
    np.testing.assert_allclose(frame @ frame.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(frame) == pytest.approx(1)


def test_exchanging_the_fingers_keeps_the_closing_line():
    frame = hand_frame(0.3, 0.5)
    np.testing.assert_allclose(half_turned(frame)[:, 2], frame[:, 2])
    np.testing.assert_allclose(half_turned(frame)[:, 0], -frame[:, 0])
    assert nearest_half_turn(np.pi - 0.1) == pytest.approx(-0.1)


@given(st.floats(0.01, 3.1), st.integers(0, 2))
def test_a_rotation_vector_is_axis_times_angle(angle, axis):
    other = [number for number in range(3) if number != axis]
    rotation = np.eye(3)
    rotation[np.ix_(other, other)] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    expected = np.zeros(3)
    expected[axis] = -angle if axis == 1 else angle  # (x, z) is a left-handed pair
    np.testing.assert_allclose(rotation_vector(rotation), expected, atol=1e-6)


def test_a_drawers_hand_is_horizontal():
    frame = from_axes(np.array([0.0, -1, 0]), np.array([0.0, 0, 1]))
    np.testing.assert_allclose(frame @ frame.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(frame) == pytest.approx(1)


def test_steering_is_straight_and_keeps_the_speed():
    action = steer(ORIGIN, ORIGIN.moved(np.array([0.4, 0.2, 0.0])), OPEN, 0.6)
    np.testing.assert_allclose(action, [0.6, 0.3, 0, 0, 0, 0, OPEN], atol=1e-12)


def test_steering_ends_softly():
    action = steer(ORIGIN, ORIGIN.moved(np.array([0.001, 0, 0])), OPEN, 0.6)
    assert 0 < action[0] < 2 * 0.001 / STEP


def test_steering_turns_about_the_worlds_axes():
    action = steer(ORIGIN, Pose(np.zeros(3), hand_frame(0.1)), OPEN, 1.0)
    np.testing.assert_allclose(action[:5], 0, atol=1e-9)
    assert action[5] == pytest.approx(0.28)


def test_being_beside_the_line_counts_and_being_above_does_not():
    assert ORIGIN.moved(np.array([0, 0, 0.3])).beside(ORIGIN) == pytest.approx(0)
    assert ORIGIN.moved(np.array([0.02, 0, 0.3])).beside(ORIGIN) == pytest.approx(0.02)


def test_boxes_overlap_by_the_depth_of_the_thinnest_axis():
    one = boxes([0.03, 0.0, 0.0])
    assert one.depth_of(np.zeros(3), np.eye(3), np.full(3, 0.02))[0] == pytest.approx(0.01)
    assert one.depth_of(np.array([-0.05, 0, 0]), np.eye(3), np.full(3, 0.02))[0] == pytest.approx(-0.04)


def test_a_turned_box_passes_the_corner_of_another():
    turned = hand_frame(np.pi / 4)
    corner = boxes([0.045, 0.045, 0.0])
    assert corner.depth_of(np.zeros(3), np.eye(3), np.full(3, 0.03))[0] > 0
    assert corner.depth_of(np.zeros(3), turned, np.full(3, 0.03))[0] < 0


def test_a_finger_in_a_neighbour_is_an_overlap_and_the_palm_over_the_taken_thing_is_none():
    under_the_palm, at_a_finger = boxes([0.0, 0.0, 0.05]), boxes([0.0, 0.05, 0.0])
    assert hand_overlap(ORIGIN, under_the_palm, taken=2) == 0
    assert hand_overlap(ORIGIN, under_the_palm, taken=1) > 0
    assert hand_overlap(ORIGIN, at_a_finger, taken=2) > 0
    assert hand_overlap(ORIGIN, boxes([0.5, 0.5, 0.0]), taken=1) == 0
