"""Tests wait for events, not for time: how long a machine takes decides nothing but how long a test takes."""

import time
from collections.abc import Callable

PATIENCE = 120.0
"""Seconds that any one event may take; far more than an idle machine needs."""


def wait_until(condition: Callable[[], object], what: str = "it", seconds: float = PATIENCE) -> None:
    """Until a condition holds; an error after much longer than that ever takes."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"{what} did not happen within {seconds:g} s"
        time.sleep(0.01)
