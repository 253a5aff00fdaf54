"""One plan, three ways: the same table to the last byte, whoever runs it and whoever is lost on the way."""

import os
import signal
from dataclasses import replace

import pytest

from lerobot_policy_quantile.evaluation.engine import Silent, run_plan
from lerobot_policy_quantile.evaluation.journal import Journal, read_errors
from lerobot_policy_quantile.evaluation.plan import Plan
from lerobot_policy_quantile.evaluation.ray_engine import RayCrew
from lerobot_policy_quantile.evaluation.tables.facts import Facts
from lerobot_policy_quantile.evaluation.tables.rates import success_table
from lerobot_policy_quantile.evaluation.tables.sheet import render, sheets_of
from lerobot_policy_quantile.evaluation.worker import WorkerJob
from tests.support.fake_worlds import FakeFactory

pytestmark = pytest.mark.slow

ray = pytest.importorskip("ray", reason="looked for the package ray: pip install 'lerobot_policy_quantile[cluster]'")
PLAN = Plan.cross(scenes=["libero_object"], tasks=range(2), indices=range(8), policies=["fake"], decoders=["a", "b"])
FACTS = Facts({"libero_object": 1000})


class Killer(Silent):
    """Kills a simulator's process when half of the plan is done."""

    def __init__(self):
        self.crew, self.reports, self.killed = None, 0, None

    def make_crew(self, job, size, timeout):
        self.crew = RayCrew(job, size, timeout, replicas=1)
        return self.crew

    def report(self, outcome, settled):
        self.reports += 1
        if self.reports == len(PLAN) // 2:
            _, simulator, _, _ = next(iter(self.crew._running.values()))
            self.killed = ray.get(simulator.process.remote())
            os.kill(self.killed, signal.SIGKILL)


def run(folder, **options):
    folder.mkdir()
    with Journal(folder / "journal.sqlite") as journal:
        summary = run_plan(
            PLAN, journal, WorkerJob(FakeFactory(folder, 0.002), log=folder / "log"), timeout=60, **options
        )
        rows = journal.rows()
    assert summary.complete
    timeless = [replace(row, wall_seconds=0.0) for row in rows]  # a clock tells each run another time
    sheets = "".join(render(sheet, style) for sheet in sheets_of(timeless, FACTS) for style in ("markdown", "csv"))
    return success_table(rows) + sheets, [(row.key, row.status, row.steps, row.hashes) for row in rows]


def test_three_ways_give_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    alone = run(tmp_path / "one", workers=1)
    assert run(tmp_path / "two", workers=2) == alone
    killer = Killer()
    assert run(tmp_path / "ray", workers=2, make_crew=killer.make_crew, watcher=killer) == alone
    assert killer.killed is not None
    assert not ray.is_initialized()
    assert any("the simulator was lost" in text for _, _, text in read_errors(tmp_path / "ray" / "journal.sqlite"))
