"""`python -m tests.support.fake_run FOLDER ...`: a whole run on fake worlds in a process that can be killed."""

import argparse
import resource
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lerobot_policy_quantile.evaluation.engine import Silent, run_plan
from lerobot_policy_quantile.evaluation.journal import Journal, JournalError
from lerobot_policy_quantile.evaluation.plan import Plan
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.evaluation.tables.rates import success_table
from lerobot_policy_quantile.evaluation.worker import WorkerJob
from tests.support.fake_worlds import FakeFactory

EPISODES = 60
HEARD = "heard-ctrl-c"
INSIDE = "inside-a-transaction"


def plan(episodes: int = EPISODES, scene: str = "fake") -> Plan:
    return Plan.cross(scenes=[scene], indices=range(episodes), policies=["fake"])


class Marking(Silent):
    """A watcher that leaves a file when Ctrl-C was heard."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def stopping(self, running: int) -> None:
        (self._folder / HEARD).touch()


class Lingering(Journal):
    """Stays inside a transaction until it is killed: rows are inserted and not committed."""

    def __init__(self, path: Path, transaction: int) -> None:
        super().__init__(path)
        self._left, self._mark = transaction, path.with_name(INSIDE)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with super()._transaction() as db:
            yield db
            self._left -= 1
            if self._left == 0:
                self._mark.touch()
                time.sleep(3600)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--scene", default="fake")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--file-limit", type=int, help="bytes that no file may outgrow: a full disk")
    parser.add_argument("--linger", type=int, default=0, help="the transaction to stay in until killed")
    parser.add_argument("--side", action="store_true")
    options = parser.parse_args()
    if options.file_limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (options.file_limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    side = SideFiles(options.folder / "side") if options.side else None
    job = WorkerJob(FakeFactory(options.folder, options.pause), side_files=side, log=options.folder / "workers.log")
    try:
        with Lingering(options.folder / "journal.sqlite", options.linger) as journal:
            what = plan(options.episodes, options.scene)
            summary = run_plan(
                what, journal, job, watcher=Marking(options.folder), workers=options.workers, timeout=options.timeout
            )
            print(success_table(journal.rows()), end="")
    except JournalError as error:
        print(error, file=sys.stderr)
        return 1
    return 130 if summary.stopped else 0


if __name__ == "__main__":
    sys.exit(main())
