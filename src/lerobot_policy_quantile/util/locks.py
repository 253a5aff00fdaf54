"""Files that one process holds at a time."""

import fcntl
import time
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
