"""Bytes that all connections together may have received and not yet decoded.

A connection whose message is large reads on only when the message fits into what is left; others wait their turn, and
the network holds back what they send. Small messages are not counted: an observation of two 224 x 224 pictures has
0.3 MiB.
"""

from collections import deque
from collections.abc import Callable

from lerobot_policy_quantile.serving.wire import MEBIBYTE

LARGE = MEBIBYTE
"""Messages up to this size are read at once."""


class ByteBudget:
    """First come, first served; one message larger than everything is let through alone."""

    def __init__(self, limit: int) -> None:
        self.limit, self.held = limit, 0
        self._waiting: deque[Callable[[], object]] = deque()

    def take(self, size: int) -> bool:
        """Whether `size` bytes were granted."""
        if self.held and self.held + size > self.limit:
            return False
        self.held += size
        return True

    def wait(self, again: Callable[[], object]) -> None:
        """Call `again` when there may be room."""
        self._waiting.append(again)

    def give(self, size: int) -> None:
        """Return bytes, and let those who wait try again."""
        self.held -= size
        for _ in range(len(self._waiting)):
            self._waiting.popleft()()


class UnreadMessages:
    """The share of one connection: bytes announced by its frames and not yet decoded."""

    def __init__(self, budget: ByteBudget, changed: Callable[[], None]) -> None:
        self._budget, self._changed = budget, changed
        self._unread = self._taken = 0
        self.waiting = self._queued = self._closed = False

    def announce(self, size: int) -> None:
        """A data frame of this size begins."""
        self._unread += size
        if not self.waiting:
            self._take()

    def decoded(self, size: int) -> None:
        """A message of this size was decoded."""
        self._unread = max(0, self._unread - size)
        self._give(self._taken - (self._unread if self._unread > LARGE else 0))
        if self.waiting:  # what was taken for this message may do for the next
            self._take()
            self._changed()

    def close(self) -> None:
        """The connection is gone."""
        self._closed = True
        self._give(self._taken)

    def _take(self) -> None:
        more = self._unread - self._taken
        if self._closed or self._unread <= LARGE or more <= 0:
            self.waiting = False
        elif self._budget.take(more):
            self._taken, self.waiting = self._taken + more, False
        else:
            self.waiting = True
            if not self._queued:
                self._queued = True
                self._budget.wait(self._again)

    def _again(self) -> None:
        self._queued = False
        self._take()
        self._changed()

    def _give(self, size: int) -> None:
        if size > 0:
            self._taken -= size
            self._budget.give(size)
