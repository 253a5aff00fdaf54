"""Clients for `make soak`: visitors who come and go, robots whose clocks drift or are set, and hostile connections.

A refusal as `stale` is false if it came sooner after the request's time stamp than the age that is allowed: the
observation cannot have been older. Each client counts into a counter of its own.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from lerobot_policy_quantile.serving.byte_budget import LARGE
from lerobot_policy_quantile.serving.client import PolicyClient, ServerGoneError
from lerobot_policy_quantile.serving.protocol import ErrorKind, RequestError
from scripts.hostile_clients import FLOODS, break_off, flood
from scripts.hostile_clocks import MAX_AGE, ClientClock
from scripts.serving_process import observation

FAULTS = ("gone", "false stale", "old accepted")
"""What must not be seen: a lost connection, a refusal without cause, an old observation that was answered."""
DRIFTS = (-200.0, 200.0, -800.0, 800.0)
"""Parts per million; with the last two, two hours move a clock as far as eight hours at 200."""
OLD_EVERY = 20
"""One of so many requests of a robot was `MAX_AGE` and a half on its way."""
LEAST_PAUSE = 2 * MAX_AGE
"""Between requests: an old one was sent after the one before, or its clock would seem to have been set back."""
FLOOD_SECONDS, FLOODING = 3.0, 2


class SoakTime(NamedTuple):
    """When the run began, when it ends, and the seconds between a client's requests."""

    began: float
    until: float
    pause: float

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self.until

    def sleep(self, seconds: float) -> None:
        """Not beyond the end."""
        time.sleep(max(0.0, min(seconds, self.until - time.monotonic())))


def visitor(url: str, seed: int, soak: SoakTime, seen: Counter[str]) -> None:
    """One client after the other: asks a few times, resets, errs on purpose, leaves or breaks off, comes back."""
    choose, draw = random.Random(seed), np.random.default_rng(seed)
    while not soak.over:
        try:
            with PolicyClient(url, timeout=30) as client:
                _visit(client, choose, draw, soak, seen)
                if choose.random() < 0.5 and client._socket is not None:
                    client._socket.socket.close()  # breaks off without a word
        except ServerGoneError:
            seen["gone"] += 1
        seen["visits"] += 1


def _visit(
    client: PolicyClient, choose: random.Random, draw: np.random.Generator, soak: SoakTime, seen: Counter[str]
) -> None:
    client.infer({}, reset=True, decoder=choose.choice(["median", "shared(l=0.1)", "density"]))
    for number in range(choose.randint(5, 20)):
        if soak.over:
            return
        sight = observation(draw)
        if choose.random() < 0.1:
            sight["observation/state"] = np.full(8, np.nan)
        seen[ask(client, sight, number, ClientClock(0.0))] += 1
        soak.sleep(soak.pause)


def robot(url: str, clock: ClientClock, soak: SoakTime, seen: Counter[str]) -> None:
    """One connection for the whole time, by a clock of its own; some requests are truly old."""
    draw, number = np.random.default_rng(0), 0
    while not soak.over:
        try:
            with PolicyClient(url, timeout=30) as client:
                client.infer({}, reset=True)
                while not soak.over:
                    number += 1
                    now = time.monotonic() - soak.began
                    old = number % OLD_EVERY == 0 and not clock.was_set(now, 10 * soak.pause)
                    outcome = ask(client, observation(draw), number, clock, soak.began, 1.5 * MAX_AGE if old else 0.0)
                    seen[_of_old(outcome) if old else outcome] += 1
                    soak.sleep(soak.pause)
        except ServerGoneError:
            seen["gone"] += 1


def ask(
    client: PolicyClient,
    sight: Mapping[str, Any],
    number: int,
    clock: ClientClock,
    zero: float = 0.0,
    delay: float = 0.0,
) -> str:
    """Ask once; `answers`, or what the refusal was. The clock began at `zero`; the stamp is `delay` seconds old."""
    stamped = time.monotonic()
    sent = clock.read(stamped - zero - delay)
    try:
        client.infer(sight, want=["quantiles", "spread"], sequence=number, sent=sent)
    except RequestError as error:
        seconds = time.monotonic() - stamped + delay
        if error.kind is ErrorKind.STALE and seconds < MAX_AGE:
            print(f"false stale after {seconds:.3f} s with {clock}: {error}", flush=True)
            return "false stale"
        return f"error {error.kind}"
    return "answers"


def _of_old(outcome: str) -> str:
    return {"answers": "old accepted", "error stale": "old refused"}.get(outcome, outcome)


def hostile(url: str, soak: SoakTime, seen: Counter[str]) -> None:
    """Now and then a short flood of one kind after the other, and large messages that break off."""
    kinds, number = list(FLOODS), 0
    while not soak.over:
        soak.sleep(15 * soak.pause)
        seen["broken off"] += break_off(url, 4 * LARGE)
        stop, closed = threading.Event(), Counter[str]()
        timer = threading.Timer(FLOOD_SECONDS, stop.set)
        timer.start()
        kind = kinds[number % len(kinds)]
        flood(url, kind, FLOODING, stop, lambda kind=kind, closed=closed: closed.update([kind]))
        seen["floods"] += 1
        seen["floods closed"] += sum(closed.values())
        number += 1
