"""Descriptors: how many clients fit under the process's limit, and handshakes that never end.

A process that has none left can neither accept nor refuse, and asyncio logs every attempt. So clients and handshakes in
progress are limited to what the process may open, and if handshakes are too many, the oldest one is dropped: an honest
one ends within a round trip.
"""

import resource
from typing import NamedTuple, Protocol

OWN = 64
"""Descriptors kept for files, libraries and what is being closed."""


class Room(NamedTuple):
    """Connections at a time."""

    clients: int
    handshakes: int
    backlog: int
    """Accepted by the kernel and not yet by us; so many can arrive between two looks."""


def room_for(clients: int) -> Room:
    """What fits under the limit of open files, which is raised as far as the process may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OWN + clients + 64 + 2 * 128
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return Room(clients, handshakes=64, backlog=128)
    few = max(4, soft // 8)
    if (left := soft - OWN - 3 * few) < 1:
        raise ValueError(f"ulimit -n must be at least {OWN + 16} for one client; got {soft}")
    return Room(min(clients, left), handshakes=few, backlog=few)


class Droppable(Protocol):
    """A connection."""

    def drop(self) -> None:
        """End it at once."""


class Handshakes:
    """Connections whose opening request has not arrived in full."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pending: dict[Droppable, None] = {}
        self.dropped = 0

    def begin(self, connection: Droppable) -> None:
        """A connection was accepted; the oldest handshake goes if they are too many."""
        self._pending[connection] = None
        if len(self._pending) > self._limit:
            oldest = next(iter(self._pending))
            del self._pending[oldest]
            self.dropped += 1
            oldest.drop()

    def end(self, connection: Droppable) -> None:
        """Its opening request has arrived, or it is gone."""
        self._pending.pop(connection, None)
