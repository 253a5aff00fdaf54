"""Which grasp is taken."""

from types import SimpleNamespace

import numpy as np
import pytest

from lerobot_policy_quantile.scenes.experts.geometry import Pose, hand_frame
from lerobot_policy_quantile.scenes.experts.grips import Rim
from lerobot_policy_quantile.scenes.experts.handling import NEARNESS, OUT_OF_HAND, Handling, Known
from lerobot_policy_quantile.scenes.experts.motion import Motion
from lerobot_policy_quantile.scenes.experts.style import Style

BOWL = np.array([0.0, 0.1, 0.9])
CANDIDATES = Rim(0.048, 0.034).candidates(BOWL, 0.0, 0.0)


def handling(hand):
    """Of a scene with a bowl and a hand at a place above it, in world coordinates relative to the bowl."""
    view = SimpleNamespace(hand=Pose(BOWL + np.array(hand), hand_frame(0.0)), position=lambda _: BOWL)
    return Handling(view, Motion(view, Style.plain()))


def preferred(side):
    """The bowl with a demonstrator who prefers one side a little."""
    costs = [0.04 * (1 - np.cos(each.side - side)) + each.cost for each in CANDIDATES]
    return Known("bowl", BOWL, CANDIDATES, np.array(costs))


def side_taken(hand, known):
    costs = known.costs + handling(hand)._nearness(known)
    return CANDIDATES[int(costs.argmin())].side


@pytest.mark.parametrize("side", [-np.pi / 2, 0.0, np.pi / 2])
def test_close_to_a_thing_every_demonstrator_takes_the_grasp_at_hand(side):
    """A policy without memory cannot know whom it imitates: the same moment has the same answer."""
    at_rim = 0.048 * np.array([np.cos(-np.pi / 2), np.sin(-np.pi / 2), 0.0]) + [0, 0, 0.05]
    assert side_taken(at_rim, preferred(side)) == pytest.approx(-np.pi / 2 % (2 * np.pi))


def test_from_afar_the_preference_decides():
    far = (0.0, -0.3, 0.2)
    assert side_taken(far, preferred(np.pi / 2)) == pytest.approx(np.pi / 2)
    assert side_taken(far, preferred(-np.pi / 2)) == pytest.approx(3 * np.pi / 2)
    assert not handling(far)._nearness(preferred(0.0)).any()


def test_nearness_grows_as_the_hand_comes_closer():
    heights = [OUT_OF_HAND * share for share in (0.99, 0.8, 0.6)]
    spreads = [np.ptp(handling((0, 0, height))._nearness(preferred(0.0))) for height in heights]
    assert 0 < spreads[0] < spreads[1] <= spreads[2] < NEARNESS
