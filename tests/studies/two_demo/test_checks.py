"""Every verification holds where it should and fails on a planted fault."""

import json
from dataclasses import replace

import numpy as np
import pytest

from lerobot_policy_quantile.contract import Chunk, Observation
from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.scenes.demonstrations import Demonstration
from lerobot_policy_quantile.scenes.experts.waypoints import Route
from lerobot_policy_quantile.studies.two_demo import checks
from lerobot_policy_quantile.studies.two_demo.records import Check


def demonstration(side: str = "left", *, success: bool = True, contacts: int = 0) -> Demonstration:
    frames = {camera: np.full((4, 4, 3), 7, np.uint8) for camera in ("external", "wrist")}
    return Demonstration(
        "embedded",
        "pick",
        (0, 0, 1),
        Route(side),
        start=np.arange(5.0),
        frames=[frames],
        states=[np.arange(8.0)],
        actions=[np.zeros(7)],
        contacts=contacts,
        success=success,
    )


def test_identical_starts_hold():
    check = checks.identical_starts([demonstration(), demonstration("right")])
    assert check.passed
    assert "simulator state differs by 0" in check.figure


@pytest.mark.parametrize("what", ["start", "states", "external", "wrist"])
def test_a_perturbed_start_is_found(what):
    other = demonstration("right")
    if what == "start":
        other.start = other.start + np.array([0, 0, 1e-12, 0, 0])
    elif what == "states":
        other.states[0] = other.states[0] + 1e-9
    else:
        other.frames[0] = {**other.frames[0], what: other.frames[0][what] + np.uint8(1)}
    assert not checks.identical_starts([demonstration(), other]).passed


@pytest.mark.parametrize(
    ("records", "control", "passed"),
    [
        ([demonstration(), demonstration("right")], demonstration("straight", success=False), True),
        ([demonstration(success=False), demonstration("right")], None, False),
        ([demonstration(), demonstration("right", contacts=1)], None, False),
        ([demonstration(), demonstration("right")], demonstration("straight"), False),
    ],
)
def test_demonstrations_must_be_as_promised(records, control, passed):
    assert all(check.passed for check in checks.as_promised(records, control)) == passed


class Drawing:
    """A policy that draws its actions from its memory; `shared` plants the fault: one generator for all episodes."""

    n_action_steps, needs_images, context = 10, True, {}

    def __init__(self, *, shared: bool = False, drift: float = 0.0) -> None:
        self._one = np.random.default_rng(0) if shared else None
        self._drift = drift

    def begin(self, seed, world, decoder):
        return self._one or np.random.default_rng(seed)

    def act(self, observations, memories):
        return [Chunk(m.normal(size=(10, 7)) + self._drift * len(memories)) for m in memories]


MOMENTS = [Observation({}, np.zeros(8), "pick")] * 2


def test_batch_is_single_for_a_policy_with_episodes_of_its_own():
    check = checks.batch_is_single("q", Drawing(), MOMENTS)
    assert check.passed
    assert "0.0e+00" in check.figure


def test_a_generator_shared_between_episodes_is_found():
    assert not checks.batch_is_single("q", Drawing(shared=True), MOMENTS).passed


def test_a_batch_that_changes_answers_is_found():
    assert not checks.batch_is_single("q", Drawing(drift=1e-4), MOMENTS).passed


def median_row(episode: int, **changes) -> Row:
    key = EpisodeKey("embedded", 0, 0, episode, "quantile-0", "median")
    hashes = {"actions": "a", "simulator": "s"}
    row = Row(key, "failure", 1, 400, 20.0, 1.0, None, 0, None, {}, hashes, None, None)
    return replace(row, **changes)


def test_identical_repeats_hold():
    assert checks.identical_repeats("q", [median_row(0), median_row(1)]).passed


@pytest.mark.parametrize(
    "rows",
    [
        [median_row(0)],
        [median_row(0), median_row(1, hashes={"actions": "b", "simulator": "s"})],
        [median_row(0), median_row(1, hashes={"actions": "a", "simulator": "t"})],
        [median_row(0), median_row(1, status="error", traceback="boom", hashes={})],
    ],
)
def test_repeats_that_differ_or_are_missing_are_found(rows):
    assert not checks.identical_repeats("q", rows).passed


def test_different_initialisations_are_found():
    assert checks.same_everywhere("initialisation", {"l1": "a", "l2": "a"}).passed
    assert not checks.same_everywhere("initialisation", {"l1": "a", "l2": "b"}).passed


def test_a_failed_check_is_written_down_and_stops_the_study(tmp_path):
    good, bad = Check("cache", "one", "0", True), Check("cache", "two", "off by 3", False)
    with pytest.raises(checks.CheckFailed, match="verification failed: cache: two: off by 3"):
        checks.record_checks(tmp_path, [good, bad])
    assert [entry["passed"] for entry in json.loads((tmp_path / "checks.json").read_text())] == [True, False]
    checks.record_checks(tmp_path, [replace(bad, figure="0", passed=True)])
    assert [entry["passed"] for entry in json.loads((tmp_path / "checks.json").read_text())] == [True, True]


@pytest.mark.parametrize(
    ("backbone", "device", "factor"), [("tiny", "cpu", 1), ("pi05", "cpu", 10), ("tiny", "cuda", 10)]
)
def test_bounds_on_rounding_are_wider_at_full_size_and_on_a_gpu(backbone, device, factor):
    rounding = checks.rounding(backbone, device)
    assert rounding == factor
    assert checks.cached_is_full("a", 0.9 * factor * 1e-5, 0, 0, rounding=rounding).passed
    assert not checks.cached_is_full("a", 1.1 * factor * 1e-5, 0, 0, rounding=rounding).passed
