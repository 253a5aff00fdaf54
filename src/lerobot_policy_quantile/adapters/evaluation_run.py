"""Runs a plan of episodes into a folder: what is missing is run, then the table of all its rows is made."""

from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from lerobot_policy_quantile.adapters.factory import SceneFactory
from lerobot_policy_quantile.adapters.run_estimate import estimate
from lerobot_policy_quantile.evaluation.engine import MakeCrew, RunSummary, run_plan
from lerobot_policy_quantile.evaluation.halts import parse_halts
from lerobot_policy_quantile.evaluation.journal import Journal, Row
from lerobot_policy_quantile.evaluation.plan import Plan
from lerobot_policy_quantile.evaluation.progress import ProgressBar
from lerobot_policy_quantile.evaluation.resumption import missing_side_files, require_same_settings
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.evaluation.tables.facts import Facts
from lerobot_policy_quantile.evaluation.tables.folders import JOURNAL
from lerobot_policy_quantile.evaluation.tables.motion import motion_table
from lerobot_policy_quantile.evaluation.tables.rates import GROUPS, success_table
from lerobot_policy_quantile.evaluation.tables.sheet import render, sheets_of
from lerobot_policy_quantile.evaluation.worker import WorkerJob
from lerobot_policy_quantile.util.exit_codes import STOPPED, WITH_ERRORS

SHOWN_ERRORS = 3


@dataclass(frozen=True)
class EvaluationSettings:
    """How a plan is run; none of it changes which episodes there are."""

    out: Path
    limit: int | None
    """Steps per episode; None: the scene's own."""
    workers: int
    timeout: float
    """Seconds of wall time per episode."""
    side_files: SideFiles | None
    by_task: bool
    budget: str | None
    until: float | None
    facts: Facts | None
    """Of the benchmarks, if the plan belongs to one."""
    make_crew: MakeCrew | None
    models: int = 1
    """Policies that a worker keeps in memory."""


@dataclass(frozen=True)
class FinishedRun:
    """A run that has ended, early or not."""

    rows: list[Row]
    """Those of the plan."""
    planned: int
    summary: RunSummary
    settings: EvaluationSettings
    gone: list[Path] = field(default_factory=list)
    """Side files that rows of the plan say they have and that are not there."""

    @property
    def table(self) -> str:
        """Success rates of the rows; of a benchmark, the published tables' layout."""
        text, how = "", self.settings
        if how.facts is None or how.by_task:
            text += success_table(self.rows, by=GROUPS if how.by_task else GROUPS[:3])
        text += motion_table(self.rows, how.side_files)
        if how.facts is not None:
            text += "\n".join(render(sheet, "markdown") for sheet in sheets_of(self.rows, how.facts))
            text += f"{len(self.rows)} of {self.planned} planned episodes have a result.\n"
        return text

    @property
    def exit_code(self) -> int:
        """0: every episode has a result and its side files."""
        if self.summary.stopped:
            return STOPPED
        if self.gone or any(row.side_error is not None for row in self.rows):
            return 1
        return WITH_ERRORS if any(row.status == "error" for row in self.rows) else 0

    def remarks(self) -> list[str]:
        """Why the run ended early, and what went wrong."""
        found = []
        if self.summary.halted:
            found.append(f"ended early: {self.summary.halted}; run the same command with more to go on")
        if self.summary.stopped:
            count = f"{len(self.rows)} of {self.planned}"
            return [*found, f"stopped with {count} episodes; run the same command again to go on"]
        errors = [row for row in self.rows if row.status == "error"]
        found += [f"error in {row.key.text}:\n{row.traceback}" for row in errors[:SHOWN_ERRORS]]
        lost = [row for row in self.rows if row.side_error is not None]
        if lost:
            found.append(f"{len(lost)} episodes have no side files: {lost[0].side_error}")
        if self.gone:
            found.append(
                f"{len(self.gone)} side files of finished episodes are gone, {self.gone[0]} first; the results stand;"
                " copy the files back if you need them"
            )
        return found


def run_evaluation(plan: Plan, factory: SceneFactory, how: EvaluationSettings, notes: Console) -> FinishedRun:
    """Run the plan's episodes that have no row yet; progress goes to `notes`."""
    job = WorkerJob(factory, how.limit, how.side_files, how.out / "workers.log", how.models)
    with Journal(how.out / JOURNAL) as journal:
        keys = set(plan)
        for policy in require_same_settings(plan, journal, job, computed_here=how.make_crew is None):
            notes.print(f"policy {policy!r} does not answer: its settings were not compared", markup=False)
        before = [row for row in journal.rows() if row.key in keys]
        settled = {row.key for row in before}
        pending = [key for key in plan if key not in settled]
        factory.require_answers(pending)
        if how.facts is None:
            factory.require_possible(pending)
        else:
            how.facts.write(how.out)
            notes.print(estimate(pending, before, factory, how.workers), markup=False)
        with ProgressBar(notes, before) as bar:
            summary = run_plan(
                plan,
                journal,
                job,
                workers=how.workers,
                timeout=how.timeout,
                watcher=bar,
                halts=parse_halts(how.budget, how.until, plan, before),
                make_crew=how.make_crew,
            )
        rows = [row for row in journal.rows() if row.key in keys]
    return FinishedRun(rows, len(plan), summary, how, missing_side_files(rows, how.side_files))
