"""Where the fingers close."""

import numpy as np
import pytest

from lerobot_policy_quantile.scenes.experts.geometry import Pose, yaw_and_tilt
from lerobot_policy_quantile.scenes.experts.grips import GRIPS, OVEN_GRIPS, Block, Rim, Round, Side

HERE = np.array([0.1, -0.2, 0.9])


def test_a_rim_is_taken_across_itself_at_its_radius():
    for candidate in Rim(0.05, 0.03).candidates(HERE, 0.0, 0.0):
        offset = candidate.pose.position - HERE
        assert offset[2] == pytest.approx(0.03)
        radius = np.linalg.norm(offset[:2])
        assert 0.019 < radius < 0.0501
        assert abs(candidate.pose.rotation[:2, 0] @ offset[:2]) == pytest.approx(radius), "closing along the radius"


def test_the_cheapest_side_of_a_rim_needs_no_turn():
    cheapest = min(Rim(0.05, 0.03).candidates(HERE, 0.0, 0.0), key=lambda candidate: candidate.cost)
    assert yaw_and_tilt(cheapest.pose.rotation) == pytest.approx((0, 0), abs=1e-9)


@pytest.mark.parametrize("yaw", [0.0, 1.0, 2.5, -2.0])
def test_a_side_turns_with_its_thing_and_the_wrist_never_more_than_a_quarter(yaw):
    (candidate,) = Side((0.05, 0.0, 0.09)).candidates(HERE, yaw, 0.0)
    offset = candidate.pose.position - HERE
    np.testing.assert_allclose(offset, [0.05 * np.cos(yaw), 0.05 * np.sin(yaw), 0.09])
    assert abs(yaw_and_tilt(candidate.pose.rotation)[0]) <= np.pi / 2 + 1e-9
    assert abs(candidate.pose.rotation[:2, 0] @ offset[:2]) == pytest.approx(0.05)


def test_a_hand_that_reaches_into_the_oven_leans_towards_it():
    (candidate,) = OVEN_GRIPS["white_yellow_mug"].candidates(HERE, 1.5, 0.0)
    assert candidate.pose.rotation[1, 2] > 0.5, "the oven is at positive y"


def test_round_things_can_be_taken_with_any_wrist_and_boxes_follow_their_turn():
    assert len({round(c.pose.rotation[0, 0], 3) for c in Round(0.01).candidates(HERE, 0.0, 0.0)}) == 8
    straight = Block(0.0).candidates(HERE, 0.0, 0.2)[0]
    assert yaw_and_tilt(straight.pose.rotation)[0] == pytest.approx(0.2)


@pytest.mark.parametrize("kind", GRIPS)
def test_every_kind_offers_something_above_the_ground(kind):
    assert GRIPS[kind].candidates(HERE, 0.3, 0.3)


@pytest.mark.parametrize(("angle", "turned"), [(0.1, 0.1), (-0.15, -0.15), (0.5, np.pi / 16), (-2.0, -np.pi / 16)])
def test_a_rim_is_taken_where_the_hand_is_up_to_halfway_to_the_next_side(angle, turned):
    rim = Rim(0.05, 0.03)
    pose = next(c.pose for c in rim.candidates(HERE, 0.0, 0.0) if c.side == 0.0)
    hand = Pose(HERE + 0.06 * np.array([np.cos(angle), np.sin(angle), 1.0]), pose.rotation)
    offset = rim.eased(pose, HERE, hand).position - HERE
    np.testing.assert_allclose(offset, [0.05 * np.cos(turned), 0.05 * np.sin(turned), 0.03], atol=1e-9)
    closing = rim.eased(pose, HERE, hand).rotation[:2, 0]
    assert abs(closing @ offset[:2]) == pytest.approx(0.05), "still closing along the radius"
    straight = Block(0.0)
    assert straight.eased(pose, HERE, hand) is pose, "a box has its places"
