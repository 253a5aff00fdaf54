"""How long work goes: a bar on a terminal, a line a minute in a log, a line per stage."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import Progress, TaskID

LOG_SECONDS = 60.0
"""How often a log is told."""


class LoggedProgress(Progress):
    """A bar that moves on a terminal. A file cannot show that: it gets the same line once a minute."""

    def __init__(self, *columns: Any, console: Console, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(*columns, console=console, get_time=clock)
        self._told = clock()

    def update(self, task_id: TaskID, **changes: Any) -> None:
        """What `Progress.update` takes."""
        super().update(task_id, **changes)
        now = self.get_time()
        if not self.console.is_terminal and now - self._told >= LOG_SECONDS:
            self._told = now
            self.console.print(self.get_renderable())


class Narrator:
    """Says what a stage does, and how long it took; quiet when told to be."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def say(self, text: str) -> None:
        """One line."""
        self.console.print(text, highlight=False, markup=False)

    @contextmanager
    def stage(self, text: str) -> Iterator[None]:
        """A line before and the seconds after."""
        self.say(f"{text} ...")
        began = time.perf_counter()
        yield
        self.say(f"{text}: {time.perf_counter() - began:.0f} s")
