"""kill -9 of workers and of the parent, at random moments and inside a transaction; resuming is the same command."""

import random
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from lerobot_policy_quantile.evaluation.journal import inspect_journal
from lerobot_policy_quantile.evaluation.run_check import examine_run
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from tests.support.fake_run import INSIDE, plan
from tests.support.killable import (
    await_rows,
    await_workers,
    everything_but_chance,
    finish,
    rows_of,
    start,
    workers_of,
)
from tests.support.waiting import PATIENCE, wait_until

OPTIONS = ("--pause", 0.01, "--side")


class Killer:
    """Runs a plan in a process, kills it as told, starts it again, and remembers what it saw."""

    def __init__(self, folder: Path, episodes: int) -> None:
        self.folder, self._options = folder, (*OPTIONS, "--episodes", episodes)
        self.seen, self.orphans = {}, []
        self.process = start(folder, *self._options)

    def kill(self, victim: str, rows: int, chance: random.Random) -> None:
        """Kill a worker, the parent, or a parent inside a transaction, once the journal has so many rows."""
        await_rows(self.folder, rows, self.process)
        time.sleep(chance.uniform(0, 0.3))
        workers = await_workers(self.process) if victim == "worker" else workers_of(self.process)
        assert self.process.poll() is None, "the run ended before all kills"
        self.seen |= {row.key: row for row in rows_of(self.folder)}
        if victim == "worker":
            chance.choice(workers).kill()
            return
        self._end(self.process)
        if victim == "transaction":
            self._kill_inside()
        self.process = start(self.folder, *self._options)

    def _kill_inside(self) -> None:
        """The row that was being written is nowhere, and those before it are whole."""
        mark = self.folder / INSIDE
        process = start(self.folder, *self._options, "--linger", 2)
        wait_until(lambda: process.poll() is not None or mark.exists(), "a transaction")
        assert process.poll() is None, f"the run ended with {process.communicate()}"
        before = rows_of(self.folder)
        self._end(process)
        mark.unlink()
        assert rows_of(self.folder) == before
        self.seen |= {row.key: row for row in before}

    def _end(self, process: subprocess.Popen[str]) -> None:
        self.orphans += workers_of(process)
        process.kill()
        process.communicate()


def kills_lose_nothing(folder: Path, victims: list[str], episodes: int, table: str, rows: list) -> None:
    killer, chance = Killer(folder, episodes), random.Random(4)
    for number, victim in enumerate(victims):
        killer.kill(victim, episodes * 3 // 4 * number // len(victims), chance)
    code, printed, _ = finish(killer.process)
    after = rows_of(folder)
    assert (code, printed) == (0, table)
    assert [row.key for row in after] == sorted(plan(episodes))
    assert list(map(everything_but_chance, after)) == list(map(everything_but_chance, rows))
    seen = killer.seen
    assert {row.key: row for row in after if row.key in seen} == seen, "a settled episode was run again"
    assert psutil.wait_procs(killer.orphans, timeout=PATIENCE)[1] == [], "workers outlived their parent"
    assert all(SideFiles(folder / "side").read(row.key)["actions"].shape == (row.steps, 7) for row in after)
    assert inspect_journal(folder / "journal.sqlite").sound
    assert {finding.status for finding in examine_run(folder)} == {"ok"}


def test_kills_of_worker_and_parent_and_inside_a_transaction_lose_nothing(undisturbed, tmp_path):
    table, rows, _ = undisturbed
    kills_lose_nothing(tmp_path, ["worker", "transaction"], len(rows), table, rows)


@pytest.mark.slow
def test_fifty_kills_five_of_them_inside_a_transaction_lose_no_key_and_run_none_twice(tmp_path):
    """Whoever is killed inside a transaction was started after a kill of its parent: 28 + 12 + 2 * 5 kills."""
    episodes, reference = 200, tmp_path / "undisturbed"
    code, table, _ = finish(start(reference, "--side", "--episodes", episodes))
    assert code == 0
    victims = ["worker"] * 28 + ["parent"] * 12 + ["transaction"] * 5
    random.Random(6).shuffle(victims)
    kills_lose_nothing(tmp_path / "killed", victims, episodes, table, rows_of(reference))
