"""Samples in proportion, budgets by a clock, stops by width, estimates from what was seen."""

from collections import Counter
from itertools import pairwise

import pytest

from lerobot_policy_quantile.evaluation.cost import (
    BLOCK,
    FEWEST,
    Budget,
    NarrowEnough,
    estimate_seconds,
    parse_duration,
    shuffled,
    spell_duration,
    stratified,
)
from lerobot_policy_quantile.evaluation.engine import run_plan
from lerobot_policy_quantile.evaluation.journal import Journal
from lerobot_policy_quantile.evaluation.outcome import Outcome
from lerobot_policy_quantile.evaluation.plan import EpisodeKey, Plan
from lerobot_policy_quantile.evaluation.worker import WorkerJob
from tests.support.fake_worlds import FakeFactory
from tests.support.rows import row


def keys(sizes):
    return [EpisodeKey("s", task, i, 0, "p", "d") for task, size in enumerate(sizes) for i in range(size)]


def test_a_sample_is_in_proportion_stable_and_of_the_size_asked_for():
    everything = keys([100, 300, 1])
    sample = stratified(everything, lambda key: key.task, 40)
    counts = [sum(key.task == task for key in sample) for task in range(3)]
    assert counts == [10, 30, 0]
    assert sample == stratified(everything[::-1], lambda key: key.task, 40)
    assert set(stratified(everything, lambda key: key.task, 20)) < set(sample)
    assert len(stratified(everything, lambda key: key.task, 10_000)) == 401
    assert sorted(stratified(everything, lambda key: key.task, 401)) == sorted(everything)


@pytest.mark.parametrize("count", [4, 8, 12])
def test_a_sample_smaller_than_the_number_of_tasks_takes_turns_among_suites(count):
    keys = [EpisodeKey(f"suite{s}", task, 0, 0, "p", "d") for s in range(4) for task in range(10)]
    sample = stratified(keys, lambda key: (key.scene, key.task), count)
    assert Counter(key.scene for key in sample) == {f"suite{s}": count // 4 for s in range(4)}


def test_mixing_keeps_policies_of_an_episode_in_one_block_and_changes_models_once_per_block():
    plan = [EpisodeKey("s", task, 0, 0, policy, "d") for task in range(2 * BLOCK + 10) for policy in ("b", "a")]
    mixed = shuffled(plan)
    assert set(mixed) == set(plan)
    first = [key.task for key in mixed[: 2 * BLOCK]]
    assert first[:BLOCK] == first[BLOCK:]
    assert first[:BLOCK] != list(range(BLOCK))
    changes = [one.policy for one, two in pairwise([*mixed, None]) if two is None or one.policy != two.policy]
    assert changes == ["b", "a"] * 3
    assert shuffled(plan[::2]) == [key for key in mixed if key.policy == "b"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("45m", 2700), ("2h", 7200), ("1h30m", 5400), ("0.5h", 1800)]
)
def test_durations(text, seconds):
    assert parse_duration("--budget", text) == seconds


@pytest.mark.bad_input
@pytest.mark.parametrize("text", ["", "2", "h2", "2 h", "-1h"])
def test_other_durations_are_refused(text):
    with pytest.raises(ValueError, match="--budget must read like"):
        parse_duration("--budget", text)


def test_durations_are_spelled():
    assert [spell_duration(s) for s in (5, 90, 3600, 5400)] == ["5 s", "2 min", "1 h 0 min", "1 h 30 min"]


def test_a_budget_counts_from_the_first_question():
    now = [100.0]
    budget = Budget(60, clock=lambda: now[0])
    assert budget.reason() is None
    now[0] = 159.0
    assert budget.reason() is None
    now[0] = 160.0
    assert budget.reason() == "the budget of 1 min is spent"


def test_a_run_ends_when_every_interval_is_narrow():
    halt = NarrowEnough(0.2, frozenset({("p", "d"), ("q", "d")})).count([row("s", policy="p", decoder="d")] * 100)
    assert halt.reason() is None
    for i in range(FEWEST - 1):
        halt.note(Outcome(EpisodeKey("s", 0, i, 0, "q", "d"), "success"))
    halt.note(Outcome(EpisodeKey("s", 0, 99, 0, "q", "d"), "error", traceback="boom"))
    assert halt.reason() is None
    halt.note(Outcome(EpisodeKey("s", 0, 98, 0, "q", "d"), "success"))
    assert halt.reason() == "every interval is at most 20 points wide"


def test_a_halted_run_says_why_and_goes_on_later(tmp_path):
    class AfterThree:
        seen = 0

        def note(self, outcome):
            self.seen += 1

        def reason(self):
            return "enough" if self.seen >= 3 else None

    plan = Plan.cross(scenes=["fake"], indices=range(6), policies=["fake"])
    job = WorkerJob(FakeFactory(tmp_path), log=tmp_path / "log")
    with Journal(tmp_path / "journal.sqlite") as journal:
        summary = run_plan(plan, journal, job, halts=[AfterThree()])
        assert (summary.complete, summary.stopped, summary.halted, len(journal.rows())) == (False, False, "enough", 3)
        assert run_plan(plan, journal, job).complete


def test_estimates_prefer_what_was_seen():
    pending = keys([2])
    seen = [row("s", policy="p", decoder="d")]  # took one second
    assert estimate_seconds(pending, seen, {"s": 50.0}, 1) == 2.0
    assert estimate_seconds(pending, [], {"s": 50.0}, 2) == 50.0
    assert estimate_seconds(pending, [], {}, 1) is None
