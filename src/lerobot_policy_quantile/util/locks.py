"""Files that one process holds at a time."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

PATIENCE = 5.0
"""Seconds. The child that a killed process was just starting has a copy of the lock until it runs its program."""
_PAUSE = 0.05


def acquire(file: IO[Any], patience: float = PATIENCE) -> None:
    """Hold the open file until it is closed; `BlockingIOError` if another process still has it after `patience`."""
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
            time.sleep(_PAUSE)
        else:
            return


@contextmanager
def alone(folder: Path, what: str) -> Iterator[None]:
    """Nobody else works in the folder within the block; refused with `what` the other one is."""
    with (folder / "lock").open("w") as lock:
        try:
            acquire(lock)
        except BlockingIOError:
            raise ValueError(f"{folder} is in use by another {what}; wait for it or stop it") from None
        yield
