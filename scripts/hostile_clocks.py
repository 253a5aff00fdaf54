"""Clocks that drift or are set: for `make soak`, and for `make serve-hostile` a day of a client with one, simulated."""

import random
from typing import NamedTuple, Protocol

from lerobot_policy_quantile.serving.transit import TransitEstimate

DAY = 86_400.0
HOUR = 3600.0
MAX_AGE = 1.0


class Estimate(Protocol):
    """Tells transit times from two clocks."""

    def extra(self, sent: float, arrived: float) -> float:
        """Seconds beyond the fastest request."""


class SmallestLag:
    """The estimate without ageing, for comparison: the smallest lag of all time is the offset."""

    def __init__(self) -> None:
        self._fastest = float("inf")

    def extra(self, sent: float, arrived: float) -> float:
        """Seconds beyond the fastest request."""
        self._fastest = min(self._fastest, arrived - sent)
        return arrived - sent - self._fastest


class ClientClock(NamedTuple):
    """Runs `ppm` fast and is set by `step` seconds at `set_at`; times are true ones."""

    ppm: float
    step: float = 0.0
    set_at: float = float("inf")

    def read(self, now: float) -> float:
        """What it shows."""
        return 5000.0 + now * (1 + 1e-6 * self.ppm) + (self.step if now >= self.set_at else 0.0)

    def was_set(self, now: float, within: float) -> bool:
        """Whether it was set in the last `within` seconds."""
        return 0.0 <= now - self.set_at < within


class Day(NamedTuple):
    """What came of a day's requests."""

    requests: int
    false_refusals: int
    old_sent: int
    old_accepted: int


def day(ppm: float, *, step: float = 0.0, period: float = 0.5, seed: int = 0, estimate: Estimate | None = None) -> Day:
    """Requests every `period` seconds, 5 to 105 ms in transit; every hour one that takes 1.5 s more than that.

    The client's clock runs `ppm` fast and is set by `step` seconds at noon. No request is as old as `MAX_AGE` but the
    slow ones, and all of those are.
    """
    draw, clock = random.Random(seed), ClientClock(ppm, step, DAY / 2)
    transit: Estimate = estimate or TransitEstimate()
    false, old, accepted, requests = 0, 0, 0, 0
    next_old, now = 1800.0, 0.0
    while now < DAY:
        slow = now >= next_old
        next_old += HOUR if slow else 0.0
        arrived = now + 0.005 + 0.1 * draw.random() ** 4 + (1.5 if slow else 0.0)
        refused = transit.extra(clock.read(now), arrived) > MAX_AGE
        requests, old = requests + 1, old + slow
        false, accepted = false + (refused and not slow), accepted + (slow and not refused)
        now += max(period, arrived - now)
    return Day(requests, false, old, accepted)
