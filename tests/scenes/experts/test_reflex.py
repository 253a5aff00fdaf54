"""The expert without memory: what it does at each moment of a pick and place."""

from dataclasses import replace

import numpy as np
import pytest

from lerobot_policy_quantile.scenes.experts.reflex import HELD_FINGER, OPEN_FINGER, SPEED, Moment, reflex, require_known
from lerobot_policy_quantile.scenes.experts.waypoints import CLOSED, GAIN, OPEN

GOAL = np.array([0.0, 0.2, 0.8])
CAN = np.array([-0.1, -0.2, 0.84])
FAR = Moment(np.array([-0.1, 0.0, 1.0]), OPEN_FINGER, CAN, "can", GOAL)
AT_THE_GRASP = replace(FAR, hand=np.array([-0.1, -0.2, 0.85]))
HOLDING = replace(AT_THE_GRASP, finger=HELD_FINGER["can"])


def carried(hand):
    """The can between closed fingers, wherever the hand is."""
    hand = np.asarray(hand, dtype=float)
    return replace(HOLDING, hand=hand, object=hand - [0, 0, 0.01])


def test_far_away_it_goes_above_the_object_at_full_speed_with_open_fingers():
    action = reflex(FAR)
    np.testing.assert_allclose(action, [0, -SPEED, -0.02 / GAIN if 0.02 / GAIN < SPEED else -SPEED, 0, 0, 0, OPEN])


def test_beside_the_object_and_low_it_rises_first():
    action = reflex(replace(FAR, hand=np.array([0.05, -0.2, 0.85])))
    assert action[2] == SPEED
    assert action[0] == 0


def test_it_descends_only_above_the_object():
    aside, above = (reflex(replace(FAR, hand=np.array([-0.1 + x, -0.2, 0.95]))) for x in (0.045, 0.0))
    assert aside[2] > above[2]
    assert above[2] == -SPEED


@pytest.mark.parametrize("off", [0.0, 0.006, -0.006])
def test_it_closes_within_the_tolerance_and_not_four_centimetres_too_high(off):
    at, high = (reflex(replace(AT_THE_GRASP, hand=np.array([-0.1 + off, -0.2, 0.85 + up]))) for up in (0.0, 0.04))
    assert at[6] == CLOSED
    assert high[6] == OPEN
    assert high[2] < 0


def test_it_keeps_closing_until_the_fingers_hold_and_lifts_then():
    halfway = reflex(replace(AT_THE_GRASP, finger=(OPEN_FINGER + HELD_FINGER["can"]) / 2))
    assert halfway[6] == CLOSED
    assert abs(halfway[2]) < 0.01
    held = reflex(HOLDING)
    assert held[6] == CLOSED
    assert held[2] > 0
    np.testing.assert_allclose(held[:2], 0)


def test_it_carries_over_the_basket_and_lets_go_only_low_and_above_its_middle():
    on_the_way, above, low = (
        reflex(carried(hand)) for hand in ([-0.05, 0.0, 1.05], [0.0, 0.2, 1.05], [0.0, 0.2, 0.96])
    )
    assert (on_the_way[6], above[6], low[6]) == (CLOSED, CLOSED, OPEN)
    assert on_the_way[1] == SPEED
    assert above[2] == -SPEED


def test_it_opens_fingers_that_closed_on_nothing():
    assert reflex(replace(FAR, finger=0.0))[6] == OPEN


def test_after_the_delivery_it_leaves_upwards():
    done = replace(FAR, object=GOAL + np.array([0, 0, 0.05]), hand=np.array([0.0, 0.2, 0.96]))
    assert done.delivered
    action = reflex(done)
    assert action[6] == OPEN
    assert action[2] > 0
    np.testing.assert_allclose(action[:2], 0)


@pytest.mark.bad_input
def test_a_thing_that_was_never_gripped_is_refused():
    with pytest.raises(ValueError, match=r"object must be one of can.*got 'kettle'"):
        require_known("kettle")
