import sqlite3
from dataclasses import replace

import pytest

from lerobot_policy_quantile.evaluation.journal import RETRIES, Journal, JournalError, read_errors, read_rows
from lerobot_policy_quantile.evaluation.outcome import Outcome
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.tables.rates import success_table

CONTEXT = {"scene_context": {"mujoco": "3.3.2"}, "policy_context": {"policy": "abc"}}


def key(index: int = 0, decoder: str = "median") -> EpisodeKey:
    return EpisodeKey("embedded", 0, index, 0, "ours", decoder)


def success(index: int = 0, **changes) -> Outcome:
    values = {"steps": 30 + index, "wall_seconds": 0.5, "first_action": (0.1, -0.2), "final_state": (1 / 3,), **CONTEXT}
    return Outcome(**{"key": key(index), "status": "success", **values, **changes})


def error(index: int = 0, text: str = "Traceback ...") -> Outcome:
    return Outcome(key(index), "error", traceback=text)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.sqlite"


def test_a_row_comes_back_as_it_was_written(path):
    outcome = success(contacts=4, hashes={"actions": "f00"}, side_error="disk full")
    with Journal(path) as journal:
        assert journal.record(outcome)
        assert journal.settled() == {key()}
        (row,) = journal.rows()
    assert read_rows(path) == [row]
    assert (row.key, row.status, row.attempts, row.contacts) == (key(), "success", 1, 4)
    assert (row.steps, row.simulated_seconds, row.wall_seconds) == (30, 1.5, 0.5)
    assert (row.first_action, row.final_state) == ((0.1, -0.2), (1 / 3,))
    assert (row.versions, row.hashes) == ({"mujoco": "3.3.2", "policy": "abc"}, {"actions": "f00"})
    assert (row.traceback, row.side_error) == (None, "disk full")


def test_the_file_is_in_wal_mode_and_fully_synchronised(path):
    with Journal(path) as journal:
        assert journal._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert journal._db.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_second_final_row_is_refused_by_the_schema(path):
    with Journal(path) as journal:
        journal.record(success())
        with pytest.raises(JournalError, match="UNIQUE constraint failed"):
            journal.record(success(status="failure"))
        assert [row.status for row in journal.rows()] == ["success"]


@pytest.mark.parametrize("table", ["results", "errors", "contexts"])
@pytest.mark.parametrize("change", ["DELETE FROM {}", "UPDATE {} SET rowid = 9"])
def test_the_schema_refuses_change_and_deletion(path, table, change):
    with Journal(path) as journal:
        journal.record(success(0))
        journal.record(error(1))
    db = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        db.execute(change.format(table))
    db.close()


def test_an_error_is_tried_again_three_times_and_then_stands(path):
    with Journal(path) as journal:
        for attempt in range(RETRIES):
            assert not journal.record(error(text=f"try {attempt + 1}"))
            assert journal.settled() == set()
        assert journal.record(error(text="try 4"))
        (row,) = journal.rows()
    assert (row.status, row.attempts, row.traceback) == ("error", 4, "try 4")
    assert [(n, text) for _, n, text in read_errors(path)] == [(n, f"try {n}") for n in (1, 2, 3, 4)]


def test_errors_before_a_result_are_kept_and_counted_across_runs(path):
    for outcome in (error(), error(), success()):
        with Journal(path) as journal:
            journal.record(outcome)
    (row,) = read_rows(path)
    assert (row.status, row.attempts) == ("success", 3)
    assert len(read_errors(path)) == 2


@pytest.mark.parametrize("scope", ["scene_context", "policy_context"])
def test_rows_of_another_simulator_or_policy_are_never_mixed_in(path, scope):
    with Journal(path) as journal:
        journal.record(success(0))
        with pytest.raises(JournalError, match=r"mujoco|policy: journal has 'abc', this run has None"):
            journal.record(success(1, **{scope: {"mujoco": "3.8.1"}}))
        journal.record(success(2))
        assert [row.key.index for row in journal.rows()] == [0, 2]


def test_two_writers_at_once_are_refused(path):
    with Journal(path), pytest.raises(JournalError, match="written by another run"):
        Journal(path)
    Journal(path).close()


def test_a_reader_sees_rows_while_a_run_writes(path):
    with Journal(path) as journal:
        journal.record(success())
        assert [row.key for row in read_rows(path)] == [key()]


def test_a_file_that_is_no_journal_is_refused(path):
    path.write_text("not a database, but long enough to be mistaken for one" * 40)
    with pytest.raises(JournalError, match="not a database"):
        Journal(path)
    with pytest.raises(JournalError, match="does not exist"):
        read_rows(path.with_name("nothing"))


def test_status_and_traceback_belong_together():
    with pytest.raises(ValueError, match="traceback must be given for an error"):
        Outcome(key(), "error")
    with pytest.raises(ValueError, match="status must be one of"):
        Outcome(key(), "done")


def rows(path, outcomes):
    with Journal(path) as journal:
        for outcome in outcomes:
            journal.record(outcome)
        return journal.rows()


def test_the_table_is_exact(path):
    outcomes = [
        success(0, steps=30),
        success(1, steps=50, status="failure"),
        replace(success(0, steps=20), key=key(0, "shared")),
        *[replace(error(), key=key(3)) for _ in range(RETRIES + 1)],
    ]
    assert success_table(rows(path, outcomes)) == (
        "scene     policy  decoder  episodes  success  failure  error     rate  seconds\n"
        "embedded  ours    median          3        1        1      1   50.0 %     2.00\n"
        "embedded  ours    shared          1        1        0      0  100.0 %     1.00\n"
        "# embedded, ours: mujoco 3.3.2; policy abc\n"
    )


def test_the_table_does_not_know_order_wall_time_or_attempts(tmp_path):
    outcomes = [success(i, status="failure" if i % 3 else "success") for i in range(12)]
    slower = [replace(o, wall_seconds=9.0) for o in reversed(outcomes)]
    first = success_table(rows(tmp_path / "a.sqlite", outcomes))
    assert success_table(rows(tmp_path / "b.sqlite", [error(4), *slower])) == first


def test_errors_alone_have_no_rate(path):
    text = success_table(rows(path, [error() for _ in range(RETRIES + 1)]), by=("scene", "task"))
    assert text.splitlines()[1].split() == ["embedded", "0", "1", "0", "0", "1", "-", "-"]
    with pytest.raises(ValueError, match="by must name some of scene, policy, decoder, task; got 'colour'"):
        success_table([], by=("colour",))


LIBERO = EpisodeKey("libero_object", 0, 0, 0, "ours", "median")
UNMARKED = {"mujoco": "3.3.2", "limit": "280"}


def test_a_journal_older_than_the_wording_rule_is_marked_and_goes_on_with_its_own_words(path):
    """Its context lacks the field: scenes spoke the bddl's `:language` then."""
    with Journal(path) as journal:
        journal.record(success(key=LIBERO, scene_context=UNMARKED))
        (row,) = journal.rows()
        assert row.versions["wording"] == "bddl"
        assert "wording bddl" in success_table([row])
        again = success(key=replace(LIBERO, index=1), scene_context=UNMARKED | {"wording": "task.language"})
        with pytest.raises(JournalError, match=r"wording: journal has 'bddl', this run has 'task\.language'"):
            journal.record(again)
        assert journal.record(replace(again, scene_context=UNMARKED | {"wording": "bddl"}))


def test_scenes_without_two_wordings_are_not_marked(path):
    with Journal(path) as journal:
        journal.record(success())
        (row,) = journal.rows()
    assert "wording" not in row.versions
