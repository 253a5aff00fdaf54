"""What the skills do at a moment, without a simulator: a view whose answers are given."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from lerobot_policy_quantile.scenes.experts.fixtures import Fixtures
from lerobot_policy_quantile.scenes.experts.geometry import OPEN, SHUT, UP, Boxes, Pose, from_axes, hand_frame
from lerobot_policy_quantile.scenes.experts.grips import Block
from lerobot_policy_quantile.scenes.experts.handling import Handling
from lerobot_policy_quantile.scenes.experts.motion import CLEAR, Motion
from lerobot_policy_quantile.scenes.experts.places import Spot
from lerobot_policy_quantile.scenes.experts.style import Style

BOX = np.array([0.1, 0.0, 0.92])
SPOT = Spot(np.array([0.1, 0.3, 0.93]))
DRAWER, OUT, HANDLE = "wooden_cabinet_1_top_region", np.array([0.0, 1, 0]), np.array([0.0, -0.1, 1.0])


@dataclass
class GivenView:
    """One thing, `box`, on a table at 0.9 m; `wall` is the height of what stands between it and its spot."""

    hand: Pose = field(default_factory=lambda: Pose(np.array([-0.2, 0.0, 1.1]), hand_frame()))
    finger: float = 0.04
    finger_speed: float = 0.0
    touch: tuple[bool, bool] = (False, False)
    box: np.ndarray = field(default_factory=lambda: BOX.copy())
    wall: float = 0.0
    rests: bool = True
    pulled: float = 0.0
    drift: np.ndarray = field(default_factory=lambda: np.zeros(3))
    home: np.ndarray = field(default_factory=lambda: np.array([-0.2, 0.0, 0.9]))
    ground: float = 0.9
    boxes: Boxes = field(
        default_factory=lambda: Boxes(np.zeros((1, 3)), np.eye(3)[None], np.full((1, 3), 0.01), np.ones(1))
    )

    def touching(self, name):
        return self.touch

    @property
    def touched(self):
        return ["box"] if any(self.touch) else []

    def position(self, name):
        return self.box

    def yaw(self, name):
        return 0.0

    turn = yaw

    def supported(self, name):
        return self.rests

    def overlap(self, pose, taken):
        return 0.0

    def reach(self, pose):
        return 0.5

    def below_origin(self, name):
        return 0.02

    def top_along(self, start, end, width, but=None):
        return self.wall

    def free_column(self, name):
        return np.zeros(3)

    def drawer(self, region):
        return self.pulled, OUT, HANDLE + abs(self.pulled) * OUT


def put(view, style=None, spot=SPOT):
    motion = Motion(view, style or Style.plain())
    handling = Handling(view, motion)
    return handling.put("box", Block(0.0), spot), handling.phase


def at(position, **given):
    return GivenView(hand=Pose(np.asarray(position, float), hand_frame()), **given)


def holding(position, **given):
    return at(position, finger=0.02, touch=(True, True), box=np.asarray(position, float), **given)


def test_it_comes_down_only_near_the_line_of_its_fingers():
    beside, above = (put(at(BOX + np.array([x, 0, 0.04])))[0] for x in (0.025, 0.0))
    assert beside[2] >= 0
    assert above[2] < -0.5
    assert above[6] == OPEN


def test_a_low_hand_rises_before_it_crosses_what_is_in_the_way():
    action, _ = put(at([-0.2, 0.0, 0.95], wall=1.0))
    assert action[2] > 0.2
    np.testing.assert_allclose(action[:2], 0)
    crossing, _ = put(at([-0.2, 0.0, 1.0 + CLEAR + 0.01], wall=1.0))
    assert crossing[0] > 0.5


def test_it_closes_at_the_thing_and_keeps_closing_while_the_fingers_move_in():
    assert put(at(BOX))[0][6] == SHUT
    assert put(at(BOX, finger=0.02, finger_speed=-0.1))[0][6] == SHUT


def test_fingers_that_stopped_on_nothing_open_again():
    action, phase = put(at(BOX, finger=0.001))
    assert action[6] == OPEN
    assert phase == "open for box"


def test_it_waits_as_long_as_its_style_before_it_closes():
    view = at(BOX)
    handling = Handling(view, Motion(view, Style(pause=3)))
    assert [handling.put("box", Block(0.0), SPOT)[6] for _ in range(5)] == [OPEN] * 3 + [SHUT] * 2


def test_it_lifts_what_it_holds_over_what_is_in_the_way_and_lets_go_on_the_spot():
    lifting, phase = put(holding(BOX, wall=1.0))
    assert phase == "carry box"
    assert lifting[6] == SHUT
    assert lifting[2] > 0
    np.testing.assert_allclose(lifting[:2], 0)
    released, phase = put(holding(SPOT.position))
    assert phase == "release box"
    assert released[6] == OPEN


def test_a_bow_bends_the_way_to_its_side_and_the_speed_is_the_styles():
    left, right = (put(at([-0.4, 0.0, 1.1]), Style(bow=bow))[0] for bow in (0.08, -0.08))
    assert left[1] > 0 > right[1]
    slow = put(at([-0.4, 0.0, 1.1]), Style(speed=0.4))[0]
    assert np.abs(slow[:3]).max() == pytest.approx(0.4)


def test_a_drawer_is_taken_horizontally_pulled_and_done_when_it_is_out():
    hand = Pose(HANDLE + 0.2 * OUT, from_axes(-OUT, UP))
    view = GivenView(hand=hand)
    fixtures = Fixtures(view, Motion(view, Style.plain()))
    assert fixtures.pull(DRAWER)[1] < 0, "towards the handle"
    view.hand, view.finger, view.touch = Pose(HANDLE, hand.rotation), 0.009, (True, True)
    pulling = fixtures.pull(DRAWER)
    assert fixtures.phase == "pull"
    assert pulling[1] > 0.5
    assert pulling[6] == SHUT
    view.pulled = -0.145
    assert not fixtures.is_open(DRAWER), "pulled on while it is held"
    view.touch = (False, False)
    assert fixtures.is_open(DRAWER)


def test_a_drawer_is_pushed_only_from_its_front():
    view = GivenView(hand=Pose(HANDLE + 0.06 * OUT, hand_frame(-np.pi / 2, 0.8)), pulled=-0.15)
    fixtures = Fixtures(view, Motion(view, Style.plain()))
    view.hand = view.hand.moved(0.15 * OUT)
    fixtures.push(DRAWER)
    assert fixtures.phase == "push"
    view.hand = view.hand.moved(0.3 * UP)
    fixtures.push(DRAWER)
    assert fixtures.phase == "to the drawer's front"
