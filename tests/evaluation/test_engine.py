"""Whole runs on fake worlds: crashes, hangs, full disks, Ctrl-C."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from lerobot_policy_quantile.evaluation.engine import EngineError, run_plan
from lerobot_policy_quantile.evaluation.journal import RETRIES, Journal, read_errors
from lerobot_policy_quantile.evaluation.plan import Plan
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.evaluation.tables.rates import success_table
from lerobot_policy_quantile.evaluation.worker import WorkerJob
from tests.support.fake_run import EPISODES, HEARD, plan
from tests.support.fake_worlds import FakeFactory
from tests.support.killable import await_rows, everything_but_chance, finish, rows_of, start, workers_of
from tests.support.waiting import PATIENCE, wait_until


def test_a_run_gives_every_key_one_row_and_its_side_files(undisturbed):
    table, rows, folder = undisturbed
    assert [row.key for row in rows] == sorted(plan())
    assert "30       30      0  50.0 %" in table
    assert all((folder / "side" / f"{row.key.digest}{suffix}").is_file() for row in rows for suffix in (".npz", ".png"))
    assert not list(folder.rglob("*.part"))


def test_one_worker_or_four_in_any_order_give_the_same_bytes(undisturbed, tmp_path):
    backward = Plan(tuple(reversed(list(plan()))))
    with Journal(tmp_path / "journal.sqlite") as journal:
        assert run_plan(backward, journal, WorkerJob(FakeFactory(tmp_path)), workers=4).complete
        assert success_table(journal.rows()) == undisturbed[0]
        assert list(map(everything_but_chance, journal.rows())) == list(map(everything_but_chance, undisturbed[1]))


def test_a_policy_that_cannot_be_loaded_ends_the_run_and_leaves_no_row(tmp_path):
    doomed = Plan.cross(scenes=["fake"], indices=range(3), policies=["unusable"])
    with Journal(tmp_path / "journal.sqlite") as journal:
        with pytest.raises(EngineError, match="policy 'unusable' cannot be loaded"):
            run_plan(doomed, journal, WorkerJob(FakeFactory(tmp_path)), workers=2)
        assert journal.rows() == []
    assert read_errors(tmp_path / "journal.sqlite") == []


@pytest.mark.parametrize(
    ("scene", "said"),
    [
        ("raises", "FloatingPointError: the simulator exploded"),
        pytest.param("hangs", "no answer within 10 s: the worker was killed", marks=pytest.mark.slow),
        ("dies", "the worker process ended with exit code 7"),
    ],
)
def test_a_simulator_that_raises_hangs_or_dies_is_an_error_and_the_others_go_on(scene, said, tmp_path):
    """Index 3 misbehaves always, index 5 once."""
    code, _, err = finish(
        start(tmp_path, "--scene", scene, "--episodes", 8, "--timeout", 10 if scene == "hangs" else PATIENCE)
    )
    assert (code, err) == (0, "")
    rows = {row.key.index: row for row in rows_of(tmp_path)}
    assert {i: row.status for i, row in rows.items()} == {
        i: "error" if i == 3 else "failure" if i % 2 else "success" for i in range(8)
    }
    assert {i: row.attempts for i, row in rows.items() if row.attempts > 1} == {3: RETRIES + 1, 5: 2}
    assert said in rows[3].traceback
    assert len(read_errors(tmp_path / "journal.sqlite")) == RETRIES + 2


def test_a_settled_error_is_not_tried_again(tmp_path):
    job = WorkerJob(FakeFactory(tmp_path))
    with Journal(tmp_path / "journal.sqlite") as journal:
        run_plan(plan(1, "missing"), journal, job)
        before = journal.rows()
        assert (before[0].status, before[0].attempts) == ("error", RETRIES + 1)
        assert "scene must be one of fake" in before[0].traceback
        assert run_plan(plan(1, "missing"), journal, job).complete
        assert journal.rows() == before


def resumes(folder: Path, undisturbed, before) -> None:
    """After a refusal: what was there is there, and the same command finishes the work."""
    after = rows_of(folder)
    assert {row.key: row for row in after}.items() >= {row.key: row for row in before}.items()
    assert len(after) < EPISODES
    code, table, _ = finish(start(folder))
    assert (code, table) == (0, undisturbed[0])


def test_a_full_disk_ends_the_run_and_earlier_rows_are_intact(undisturbed, tmp_path):
    finish(start(tmp_path, "--episodes", 10))
    before = rows_of(tmp_path)
    code, _, err = finish(start(tmp_path, "--file-limit", 120_000))
    assert code == 1
    assert "rows written before are intact" in err
    assert len(before) == 10
    resumes(tmp_path, undisturbed, before)


def test_a_full_file_system_ends_the_run_and_earlier_rows_are_intact(undisturbed, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=192k", "tmpfs", disk], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(
            f"a small file system cannot be mounted here ({mounted.stderr.strip()}); RLIMIT_FSIZE stands for it"
        )
    try:
        finish(start(disk, "--episodes", 5))
        before = rows_of(disk)
        code, _, err = finish(start(disk))
        assert code == 1
        assert "full" in err
        assert len(before) == 5
        rescue = tmp_path / "rescue"
        shutil.copytree(disk, rescue)
        resumes(rescue, undisturbed, before)
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_read_only_folder_ends_the_run_and_earlier_rows_are_intact(undisturbed, tmp_path):
    finish(start(tmp_path, "--episodes", 10))
    before = rows_of(tmp_path)
    wrapper: tuple[str, ...] = ()
    if os.geteuid() == 0:  # root writes everywhere; without its capabilities it does not
        if shutil.which("setpriv") is None:
            pytest.skip("root ignores file modes and setpriv (util-linux) is not there to take that away")
        wrapper = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--")
    files = [tmp_path, *tmp_path.iterdir()]
    for path in files:
        path.chmod(0o555 if path.is_dir() else 0o444)
    code, _, err = finish(start(tmp_path, wrapper=wrapper))
    for path in files:
        path.chmod(0o755)
    assert code == 1
    assert "cannot be opened for writing" in err
    assert rows_of(tmp_path) == before
    resumes(tmp_path, undisturbed, before)


def test_side_files_that_cannot_be_written_cost_no_result(tmp_path):
    (tmp_path / "side").write_text("a file where the folder should be")
    with Journal(tmp_path / "journal.sqlite") as journal:
        job = WorkerJob(FakeFactory(tmp_path), side_files=SideFiles(tmp_path / "side"))
        run_plan(plan(2), journal, job)
        assert [row.status for row in journal.rows()] == ["success", "failure"]
        assert all("File exists" in row.side_error for row in journal.rows())


@pytest.mark.slow
def test_ctrl_c_finishes_running_episodes_and_twice_kills_them(undisturbed, tmp_path):
    """Slow episodes: 24 steps of 0.1 s. The signal goes to the whole group, as a terminal sends it."""
    process = start(tmp_path, "--pause", 0.1)
    await_rows(tmp_path, 2, process)
    before = len(rows_of(tmp_path))
    os.killpg(process.pid, signal.SIGINT)
    code, _, err = finish(process)
    assert (code, err) == (130, "")
    assert before + 1 <= len(rows_of(tmp_path)) <= before + 4, "what ran came to its end, and little more began"
    assert read_errors(tmp_path / "journal.sqlite") == []

    process = start(tmp_path, "--pause", 100)
    wait_until((tmp_path / "asleep").exists, "an episode")
    workers = workers_of(process)
    (tmp_path / HEARD).unlink()
    os.killpg(process.pid, signal.SIGINT)
    wait_until((tmp_path / HEARD).exists, "Ctrl-C")
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    assert finish(process)[0] == 130
    assert psutil.wait_procs(workers, timeout=PATIENCE)[1] == []
    code, table, _ = finish(start(tmp_path))
    assert (code, table) == (0, undisturbed[0])


class Unloadable:
    """Pickles here, and cannot be unpickled in a worker."""

    def __reduce__(self):
        return (os._exit, (3,))


def test_workers_that_cannot_start_end_the_run_instead_of_counting_errors(tmp_path):
    with Journal(tmp_path / "journal.sqlite") as journal:
        with pytest.raises(EngineError, match="workers cannot start: the worker process ended with exit code 3"):
            run_plan(plan(2), journal, WorkerJob(Unloadable()))
        assert journal.rows() == []
    assert read_errors(tmp_path / "journal.sqlite") == []


@pytest.mark.parametrize(("field", "value"), [("workers", 0), ("timeout", 0.0), ("timeout", float("nan"))])
def test_bad_settings_are_named(tmp_path, field, value):
    with Journal(tmp_path / "journal.sqlite") as journal, pytest.raises(ValueError, match=f"{field} must be"):
        run_plan(plan(1), journal, WorkerJob(FakeFactory(tmp_path)), **{field: value})
