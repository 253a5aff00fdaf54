"""The proofs of the server can fail: what they measure and how they judge."""

import mmap
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest

from lerobot_policy_quantile.adapters.replanning import ReplannedPolicy, parse_replan
from lerobot_policy_quantile.contract import Chunk
from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.serving.protocol import ErrorKind, RequestError
from scripts import soak_clients
from scripts.adaptive import LEAST, Episode, Way, doubt_of, row, thresholds
from scripts.hostile_clocks import ClientClock
from scripts.serve_soak import judged, passes
from scripts.serving_process import VitalSigns, vital_signs
from scripts.soak_clients import FAULTS, ask


def soak(own, resident=lambda minute: 900.0, descriptors=lambda minute: 11, threads=lambda minute: 5):
    """Vital signs of an hour, twice a minute."""
    return [(m / 2, VitalSigns(own(m / 2), resident(m / 2), descriptors(m / 2), threads(m / 2))) for m in range(1, 121)]


def test_a_leak_is_not_flat_even_while_the_kernel_takes_pages_of_files_back():
    """Half a MiB a minute is 22 MiB from the first to the last sixth; resident memory falls meanwhile."""
    leaking = judged(soak(lambda m: 500 + 0.5 * m, resident=lambda m: 950 - 2 * m), 60)
    assert not leaking["flat"]
    assert leaking["own_mib_per_hour"] == pytest.approx(30)
    assert judged(soak(lambda m: 500 + 3 * (m < 6)), 60)["flat"], "the first tenth is warm-up"
    assert not judged(soak(lambda m: 500, descriptors=lambda m: 11 + int(m / 5)), 60)["flat"]
    assert not judged(soak(lambda m: 500, threads=lambda m: 5 + int(m / 5)), 60)["flat"]


def test_a_soak_fails_for_every_fault():
    good = {
        "seen": {"answers": 9, **dict.fromkeys(FAULTS, 0)},
        "flat": True,
        "alive": True,
        "tracebacks": 0,
        "unfinished": 0,
    }
    assert passes(good)
    for name in FAULTS:
        assert not passes(good | {"seen": good["seen"] | {name: 1}}), name
    bad = {"flat": False, "alive": False, "tracebacks": 1, "unfinished": 1, "seen": dict.fromkeys(FAULTS, 0)}
    for name, value in bad.items():
        assert not passes(good | {name: value}), name


@pytest.mark.parametrize(
    ("stalled", "seconds", "delay", "outcome"),
    [
        (0.0, 0.5, 0.0, "false stale"),
        (0.0, 1.5, 0.0, "error stale"),
        (1.0, 0.5, 0.0, "error stale"),
        (0.0, 0.5, 1.5, "error stale"),
    ],
)
def test_a_refusal_sooner_after_the_stamp_than_the_allowed_age_is_false(monkeypatch, stalled, seconds, delay, outcome):
    """Where the client was held up between its time stamp and sending, the observation is as old as that."""
    now = [0.0]

    class StallingClock(ClientClock):
        def read(self, _):
            now[0] += stalled
            return 0.0

    class Refusing:
        def infer(self, *_, **__):
            now[0] += seconds
            raise RequestError(ErrorKind.STALE, "the observation is 1.2 s old")

    monkeypatch.setattr(soak_clients, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assert ask(Refusing(), {}, 1, StallingClock(0.0), delay=delay) == outcome


def test_a_robots_clock_drifts_and_is_set():
    clock = ClientClock(-200.0, step=3600.0, set_at=5000.0)
    assert clock.read(4000.0) - clock.read(0.0) == pytest.approx(3999.2)
    assert clock.read(6000.0) - clock.read(0.0) == pytest.approx(9598.8)
    assert [clock.was_set(now, 100.0) for now in (4999.0, 5001.0, 5101.0)] == [False, True, False]


def test_own_memory_is_what_a_process_wrote_itself():
    size = 50 * 2**20
    before = vital_signs()
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE) as held:  # new pages: an allocator may have old ones at hand
        held.write(b"1" * size)
        after = vital_signs()
        assert held[-1] == ord("1")
    assert after.own_mib - before.own_mib > 45
    assert after.own_mib < after.resident_mib


LEVELS = tuple(float(level) for level in quantile_levels(21))
CHUNK = np.broadcast_to((0.1 * (1 + np.arange(10)))[:, None, None] * (np.array(LEVELS) - 0.5), (10, 7, 21))


class WideningPolicy:
    """Chunks of ten whose spread grows by 0.08 with every step; see the levels' linear quantiles."""

    config = SimpleNamespace(chunk_size=10)
    levels, grippers, needs_images = LEVELS, (6,), True
    context = MappingProxyType({"policy": "widening"})

    def begin(self, seed, world, decoder):
        return None

    def act(self, observations, memories):
        return [Chunk(np.zeros((10, 7)), CHUNK) for _ in observations]


@pytest.mark.parametrize(
    ("way", "steps", "executed"),
    [
        (Way(steps=3), 10, 3),
        (Way(threshold=0.3), 3, 10),
        (Way(threshold=0.01), LEAST, 10),
        (Way(threshold=9.0), 10, 10),
    ],
)
def test_chunks_are_followed_as_far_as_the_way_says(way, steps, executed):
    policy = ReplannedPolicy(WideningPolicy(), parse_replan(way.rule))
    policy.begin(0, None, "median")
    (chunk,) = policy.act([None], [None])
    assert len(chunk.actions) == steps
    assert policy.n_action_steps == executed, "what the closed loop executes at most"
    np.testing.assert_allclose(doubt_of(CHUNK[None], LEVELS, (6,)), 0.08 * (1 + np.arange(10)), atol=1e-4)


def test_thresholds_follow_the_chunks_seen_for_three_and_five_steps_per_look():
    """Spread n / 100 at step n: a threshold of 0.03 is passed by the steps 0 to 3 (four of them), and so on."""
    chunks = [round(0.01 * step, 4) for step in range(10)] * 3
    seen = [Episode("fixed 3", 1, index, True, 30, 10, chunks) for index in range(2)]
    assert thresholds(seen) == [0.02, 0.04]


def test_a_row_counts_looks_and_successes():
    seen = [Episode("fixed 3", 1, index, index > 0, steps=30, looks=10, doubt=[]) for index in range(4)]
    figures = ["3 of 4", "30% to 95%", "10.0 (10.0 to 10.0)", "3.0", "30.0 (30.0 to 30.0)"]
    assert row("fixed 3", seen) == ["fixed 3", *figures]
