"""Several pieces of work at once, each in a process, with word of how it goes; one worker means in this process.

A piece that fails ends the whole. The closed loop has workers of its own (`evaluation/engine.py`), because an episode
that raises, hangs or kills its process costs that episode one attempt; processes that train together are started by
`pretraining/launch.py`, because none can go on without the others.
"""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from queue import Empty
from types import TracebackType
from typing import Any, Self

from lerobot_policy_quantile.util.processes import end_with_parent, give_back_memory

_POLL_SECONDS = 0.5

Told = Callable[[int, int, float], None]
"""Number of the piece of work, how far it is, a figure."""

_messages: Any = None


def _silent(*_: Any) -> None:
    """Tell nobody."""


def _begin(messages: Any) -> None:
    global _messages
    _messages = messages
    end_with_parent()


def _work(work: Callable[..., Any], number: int, given: tuple[Any, ...], tells: bool) -> Any:
    """In a worker: do the work and tell the parent how it goes. The next piece needs other memory than this one did."""
    try:
        if not tells:
            return work(*given)
        return work(*given, lambda done, figure: _messages.put((number, done, figure)))
    finally:
        give_back_memory()


class WorkerPool:
    """Worker processes that import the heavy libraries once and serve every stage."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool: ProcessPoolExecutor | None = None
        self._messages: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._pool is None:
            return
        if error is not None:  # what is under way would go on for minutes, and nobody would keep it
            for worker in multiprocessing.active_children():
                worker.terminate()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def each(
        self, work: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], told: Told | None = None
    ) -> Iterator[tuple[int, Any]]:
        """(number, result) of every piece of work as it ends; with `told`, work gets a callable to tell how it goes."""
        if self._workers == 1:
            for number, given in enumerate(arguments):
                yield number, work(*given) if told is None else work(*given, _bound(told, number))
            return
        pool = self._started()
        running: dict[Future[Any], int] = {
            pool.submit(_work, work, number, given, told is not None): number for number, given in enumerate(arguments)
        }
        while running:
            finished, _ = wait(running, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
            self._pass_on(told or _silent)
            for future in finished:
                yield running.pop(future), future.result()

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._messages = context.Queue()
            self._pool = ProcessPoolExecutor(
                self._workers, mp_context=context, initializer=_begin, initargs=(self._messages,)
            )
        return self._pool

    def _pass_on(self, told: Told) -> None:
        while True:
            try:
                told(*self._messages.get_nowait())
            except Empty:
                return


def _bound(told: Told, number: int) -> Callable[[int, float], None]:
    return lambda done, figure: told(number, done, figure)
