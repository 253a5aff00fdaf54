"""How long work goes, on one line: what is done, what came of it, time left."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.outcome import Outcome
from lerobot_policy_quantile.util.progress import LoggedProgress


class ProgressBar:
    """A watcher with a bar. Counts start from what the journal already holds."""

    def __init__(self, console: Console, before: list[Row]) -> None:
        self._judged = {"success": 0, "failure": 0, "error": 0}
        for row in before:
            self._judged[row.status] += 1
        self._retries = 0
        self._console = console
        self._progress = LoggedProgress(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[counts]}"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
        )
        self._task = self._progress.add_task("episodes", total=None, counts=self.counts)

    @property
    def counts(self) -> str:
        """Success so far among judged episodes, errors, attempts that will be repeated."""
        success, failure, error = self._judged.values()
        rate = f"{100 * success / (success + failure):.0f} %" if success + failure else "-"
        return f"success {success}/{success + failure} ({rate}), errors {error}" + (
            f", repeated {self._retries}" if self._retries else ""
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._progress.stop()

    def begin(self, done: int, total: int) -> None:
        """Show what is left."""
        self._progress.update(self._task, total=total, completed=done)
        if done:
            self._console.print(f"{done} of {total} episodes are in the journal; running the rest", highlight=False)

    def report(self, outcome: Outcome, settled: bool) -> None:
        """One attempt further."""
        if settled:
            self._judged[outcome.status] += 1
        else:
            self._retries += 1
        self._progress.update(self._task, advance=int(settled), counts=self.counts)

    def stopping(self, running: int) -> None:
        """Say what the first Ctrl-C did."""
        self._console.print(f"stopping after {running} running episodes; Ctrl-C again kills them", highlight=False)
