"""How processes that run side by side share cores and memory, and end together."""

import ctypes
import os
from multiprocessing import parent_process
from multiprocessing.connection import wait
from threading import Event, Thread
from types import TracebackType
from typing import Self

import psutil

_WATCH_SECONDS = 2.0


def share_cores(workers: int) -> None:
    """One thread of arithmetic per process; where processes take all cores, pictures are drawn in the same thread.

    The latter is for software rendering (Mesa's llvmpipe), which starts a thread per core in every process otherwise.
    Call it before torch and GL are loaded. What the environment says already stands.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if workers >= (os.cpu_count() or 1):
        os.environ.setdefault("LP_NUM_THREADS", "0")


def end_with_parent() -> None:
    """From now on this process ends at once when its parent is gone, in the middle of its work too."""
    Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def give_back_memory() -> None:
    """Return to the system what the C library holds ready for later; only glibc can be asked to."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def memory_held() -> int:
    """Bytes held by this process and all below it; pages that several of them share count once.

    Only Linux tells proportional shares; elsewhere what each has for itself is added up.
    """
    this, held = psutil.Process(), 0
    for process in (this, *this.children(recursive=True)):
        try:
            told = process.memory_full_info()
        except psutil.Error:  # it ended meanwhile
            continue
        held += getattr(told, "pss", told.uss)
    return held


class MemoryWatch:
    """The most memory that was held at once within a `with` block, looked at every few seconds."""

    def __init__(self, seconds: float = _WATCH_SECONDS) -> None:
        self.most = 0
        self._seconds, self._over = seconds, Event()
        self._watcher = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._watcher.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._over.set()
        self._watcher.join()

    def _watch(self) -> None:
        while True:
            self.most = max(self.most, memory_held())
            if self._over.wait(self._seconds):
                return
