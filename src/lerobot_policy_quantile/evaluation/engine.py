"""The local engine: worker processes, one simulator each, and a parent that alone writes the journal.

A worker that hangs or dies costs its episode one attempt and nobody else anything: `util/pool.py`, where a piece that
fails ends the whole, would not do. Whatever is killed, running the same plan on the same journal again runs exactly the
keys that have no final row yet.
"""

import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import wait
from types import FrameType
from typing import Protocol, Self

from lerobot_policy_quantile.evaluation.journal import Journal
from lerobot_policy_quantile.evaluation.outcome import Outcome
from lerobot_policy_quantile.evaluation.plan import EpisodeKey, Plan
from lerobot_policy_quantile.evaluation.worker import READY, WorkerJob, serve

LOOK_SECONDS = 0.25
"""How often the parent looks at deadlines and at Ctrl-C when no worker reports."""

START_SECONDS = 300.0
"""How long a worker may take to be ready for its first episode."""

STARTS_THAT_MAY_FAIL = 3
"""Workers in a row that may end before they are ready; then something is wrong with all of them."""


class EngineError(RuntimeError):
    """No worker can be started, or none can do what it is told."""


class Watcher(Protocol):
    """Is told how a run goes."""

    def begin(self, done: int, total: int) -> None:
        """A run starts with `done` of its `total` keys already in the journal."""

    def report(self, outcome: Outcome, settled: bool) -> None:
        """An attempt has ended and is in the journal."""

    def stopping(self, running: int) -> None:
        """Ctrl-C: no new episode starts, `running` ones are finished."""


class Silent:
    """A watcher that says nothing."""

    def begin(self, done: int, total: int) -> None:
        """Nothing."""

    def report(self, outcome: Outcome, settled: bool) -> None:
        """Nothing."""

    def stopping(self, running: int) -> None:
        """Nothing."""


class Halt(Protocol):
    """May end a run before its plan is done."""

    def reason(self) -> str | None:
        """Why no further episode shall start; None to go on."""

    def note(self, outcome: Outcome) -> None:
        """An attempt has ended."""


class Runners(Protocol):
    """Those who run episodes. Whoever they are, the journal's one writer is here."""

    def __enter__(self) -> Self:
        """Ready to be handed work."""

    def __exit__(self, *_: object) -> None:
        """End everyone for certain."""

    def busy(self) -> int:
        """How many episodes are running."""

    def hand_out(self, pending: deque[EpisodeKey]) -> None:
        """Give every idle member an episode from the left of `pending`."""

    def collect(self) -> Iterator[Outcome]:
        """What came back within a short while."""


MakeCrew = Callable[[WorkerJob, int, float], Runners]
"""From what they are told, how many they are and how many seconds an episode may take."""


@dataclass(frozen=True)
class RunSummary:
    """How a run ended."""

    complete: bool
    """Every key of the plan has its final row."""
    stopped: bool
    """It ended early because of Ctrl-C."""
    halted: str | None = None
    """Why it ended early otherwise."""


def run_plan(
    plan: Plan,
    journal: Journal,
    job: WorkerJob,
    *,
    workers: int = 1,
    timeout: float = 600.0,
    watcher: Watcher | None = None,
    halts: Sequence[Halt] = (),
    make_crew: MakeCrew | None = None,
) -> RunSummary:
    """Run every key of the plan that has no final row yet.

    `timeout` is the wall time in seconds that one episode may take, the making of its world included. The first
    Ctrl-C lets running episodes finish, the second kills them; the journal is whole in either case.
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1; got {workers}")
    if not timeout > 0:
        raise ValueError(f"timeout must be positive seconds; got {timeout}")
    settled = journal.settled()
    pending = deque(key for key in plan if key not in settled)
    watcher = watcher or Silent()
    watcher.begin(len(plan) - len(pending), len(plan))
    if job.side_files is not None:
        job.side_files.sweep()
    halted = None
    crew = (make_crew or _Crew)(job, min(workers, len(pending)), timeout)
    with _interrupts() as interrupts, crew:
        halted = _drive(crew, pending, journal, watcher, interrupts, halts)
    settled = journal.settled()
    complete = all(key in settled for key in plan)
    return RunSummary(complete, interrupts.count > 0 and not complete, None if complete else halted)


def _drive(
    crew: Runners,
    pending: deque[EpisodeKey],
    journal: Journal,
    watcher: Watcher,
    interrupts: "_Interrupts",
    halts: Sequence[Halt],
) -> str | None:
    """Run until nothing is pending, Ctrl-C or a halt; returns the halt's reason."""
    told = False
    while True:
        reason = next(filter(None, (halt.reason() for halt in halts)), None)
        if interrupts.count > 1:
            return reason
        if interrupts.count and not told:
            watcher.stopping(crew.busy())
            told = True
        ending = bool(interrupts.count or reason)
        if not ending:
            crew.hand_out(pending)
        if not crew.busy() and (ending or not pending):
            return reason
        for outcome in crew.collect():
            if outcome.hopeless is not None:
                raise EngineError(outcome.hopeless)
            final = journal.record(outcome)
            if not final:
                pending.append(outcome.key)
            watcher.report(outcome, final)
            for halt in halts:
                halt.note(outcome)


class _Member:
    """One worker process and what it is doing."""

    def __init__(self, job: WorkerJob, timeout: float) -> None:
        context = get_context("spawn")
        self._timeout = timeout
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, job), daemon=True)
        with _interrupts_held():
            self.process.start()
        theirs.close()
        self.ready = False
        self.key: EpisodeKey | None = None
        self.deadline = time.monotonic() + START_SECONDS

    def give(self, key: EpisodeKey) -> None:
        """Hand it an episode; the clock starts."""
        self.key, self.deadline = key, time.monotonic() + self._timeout
        with suppress(OSError):  # it died while idle: `take` finds out and the key is tried again
            self.connection.send(key)

    def take(self) -> Outcome | str | None:
        """Its message, or None if it is dead."""
        try:
            message: Outcome | str = self.connection.recv()
        except (EOFError, OSError):  # OSError: it was killed in the middle of a message
            return None
        return message

    def kill(self) -> int | None:
        """End it for certain."""
        self.process.kill()
        self.process.join()
        self.connection.close()
        return self.process.exitcode


class _Crew:
    """The workers of a run; lost ones are replaced."""

    def __init__(self, job: WorkerJob, size: int, timeout: float) -> None:
        self._job, self._size, self._timeout = job, size, timeout
        self._members: list[_Member] = []
        self._failed_starts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._members:
            member.kill()
        self._members.clear()

    def busy(self) -> int:
        """How many episodes are running."""
        return sum(member.key is not None for member in self._members)

    def hand_out(self, pending: deque[EpisodeKey]) -> None:
        """Fill up the crew and give every idle worker an episode."""
        while len(self._members) < min(self._size, self.busy() + len(pending)):
            self._members.append(_Member(self._job, self._timeout))
        for member in self._members:
            if member.ready and member.key is None and pending:
                member.give(pending.popleft())

    def collect(self) -> Iterator[Outcome]:
        """What came back within a short while: results, and errors for workers that died or hang."""
        reporting = wait([member.connection for member in self._members], timeout=LOOK_SECONDS)
        for member in list(self._members):
            if member.connection in reporting:
                yield from self._hear(member)
            elif time.monotonic() > member.deadline and (member.key is not None or not member.ready):
                allowed = self._timeout if member.ready else START_SECONDS
                yield from self._lose(member, f"no answer within {allowed:g} s: the worker was killed")

    def _hear(self, member: _Member) -> Iterator[Outcome]:
        message = member.take()
        if message is None:
            yield from self._lose(member, None)
        elif isinstance(message, Outcome):
            member.key = None
            yield message
        elif message == READY:
            member.ready, self._failed_starts = True, 0

    def _lose(self, member: _Member, reason: str | None) -> Iterator[Outcome]:
        member.process.join(timeout=10 if reason is None else 0)  # let a dying one leave its own exit code
        code = member.kill()
        self._members.remove(member)
        reason = reason or f"the worker process ended with exit code {code}"
        if member.key is not None:
            yield Outcome(member.key, "error", traceback=f"{reason} (its output is in {self._job.log})")
        elif not member.ready:
            self._failed_starts += 1
            if self._failed_starts > STARTS_THAT_MAY_FAIL:
                raise EngineError(f"workers cannot start: {reason}; their output is in {self._job.log}")


class _Interrupts:
    """Counts Ctrl-C."""

    count = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.count += 1


@contextmanager
def _interrupts() -> Iterator[_Interrupts]:
    """Ctrl-C is counted instead of raised."""
    counter = _Interrupts()
    before = signal.signal(signal.SIGINT, counter)
    try:
        yield counter
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """A process started here never sees Ctrl-C, not even before it runs its first line; we see it afterwards."""
    resource_tracker.ensure_running()  # it unblocks signals when it is started, so start it before
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
