"""Plans in a folder: a journal, side files and a bar; and plans that must be run to their end."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from lerobot_policy_quantile.contract import Factory
from lerobot_policy_quantile.evaluation.engine import Halt, MakeCrew, RunSummary, run_plan
from lerobot_policy_quantile.evaluation.journal import Journal, Row
from lerobot_policy_quantile.evaluation.plan import Plan
from lerobot_policy_quantile.evaluation.progress import ProgressBar
from lerobot_policy_quantile.evaluation.resumption import missing_side_files, require_same_settings
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.evaluation.worker import WorkerJob

JOURNAL, SIDE, LOG = "journal.sqlite", "side", "workers.log"
"""Files of a run in its folder."""


class UnfinishedError(RuntimeError):
    """Some episodes of a plan have no result."""


def rows_of(plan: Plan, journal: Journal) -> list[Row]:
    """The plan's rows that the journal has."""
    keys = set(plan)
    return [row for row in journal.rows() if row.key in keys]


def run_watched(
    plan: Plan,
    journal: Journal,
    job: WorkerJob,
    *,
    workers: int,
    timeout: float,
    console: Console,
    halts: Sequence[Halt] = (),
    make_crew: MakeCrew | None = None,
) -> RunSummary:
    """`run_plan` under a bar that counts from what the journal holds, with the settings it was begun with."""
    require_same_settings(plan, journal, job, computed_here=make_crew is None)
    with ProgressBar(console, rows_of(plan, journal)) as bar:
        return run_plan(
            plan, journal, job, workers=workers, timeout=timeout, watcher=bar, halts=halts, make_crew=make_crew
        )


def run_whole(
    plan: Plan,
    folder: Path,
    factory: Factory,
    *,
    workers: int,
    console: Console,
    timeout: float = 600.0,
    models: int = 1,
) -> list[Row]:
    """Every row of the plan, those that the folder's journal lacks run first; arrays are in `SideFiles(folder / SIDE)`.

    A worker keeps so many `models`. `UnfinishedError` after Ctrl-C, and for episodes that have an error in place of a
    result or lost their side files.
    """
    job = WorkerJob(factory, None, SideFiles(folder / SIDE, video=False), folder / LOG, models)
    with Journal(folder / JOURNAL) as journal:
        summary = run_watched(plan, journal, job, workers=workers, timeout=timeout, console=console)
        rows = rows_of(plan, journal)
    if summary.stopped:
        raise UnfinishedError(f"stopped with {len(rows)} of {len(plan)} episodes; run the same command again to go on")
    if gone := missing_side_files(rows, job.side_files):
        raise UnfinishedError(f"{len(gone)} side files of finished episodes are gone, {gone[0]} first; copy them back")
    for row in rows:
        if lost := row.traceback or row.side_error:
            raise UnfinishedError(f"{row.key.text} in {folder / JOURNAL} must have a result and side files; {lost}")
    return rows
