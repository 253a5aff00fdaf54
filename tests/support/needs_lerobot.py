"""Not collected by itself: the twin of the core tests that must fail where LeRobot is blocked."""

import lerobot


def test_lerobot_is_here():
    assert lerobot.__version__
