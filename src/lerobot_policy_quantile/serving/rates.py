"""Rates that are bounded per second: events of a connection, and lines of a log."""

import logging
import time
from collections.abc import Callable


class Allowance:
    """`rate` events per second on average, `burst` at once."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._left, self._at = burst, clock()

    def spend(self) -> float:
        """Count one event; seconds by which it comes too early, 0 if it is within the allowance."""
        now = self._clock()
        self._left = min(self._burst, self._left + self._rate * (now - self._at)) - 1
        self._at = now
        return max(0.0, -self._left / self._rate)


class RepeatedLines(logging.Filter):
    """Lets one line of a kind through in `every` seconds, and says how many were left out.

    Lines are of one kind if logger, level and the beginning of their template are the same.
    """

    KINDS = 1000

    def __init__(self, every: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._every, self._clock = every, clock
        self._seen: dict[tuple[str, int, str], list[float]] = {}
        """Kind -> when one was let through, and how many were left out since."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written."""
        kind = (record.name, record.levelno, str(record.msg).partition("\n")[0][:80])
        now = self._clock()
        seen = self._seen.get(kind)
        if seen is not None and now - seen[0] < self._every:
            seen[1] += 1
            return False
        if seen is not None and seen[1]:
            record.msg = f"{record.msg} [and {seen[1]:.0f} like it before]"
        if len(self._seen) >= self.KINDS:
            self._seen.clear()
        self._seen[kind] = [now, 0]
        return True


def log_to_stderr() -> None:
    """Log lines on standard error, few of one kind; a client's faults are in the metrics, not here."""
    handler = logging.StreamHandler()
    handler.addFilter(RepeatedLines())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", handlers=[handler])
    logging.getLogger("websockets").setLevel(logging.CRITICAL)
