"""A websocket connection that records since when an incoming message has been incomplete.

A client that sends one byte per second can keep a message incomplete forever, in one frame or in many fragments, and
the websocket library waits for it. The server drops connections whose message has been incomplete for too long.
"""

import time
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.frames import Frame, Opcode

_DATA = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)


class WatchedConnection(ServerConnection):
    """`unfinished_since` is the `time.monotonic()` of an incomplete message's first byte; None between messages."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.unfinished_since: float | None = None
        self._events = 0
        self._between_fragments = False

    def process_event(self, event: Any) -> None:
        """Count frames and the handshake; a data frame without the final flag leaves the message incomplete."""
        self._events += 1
        if isinstance(event, Frame) and event.opcode in _DATA:
            self._between_fragments = not event.fin
        super().process_event(event)

    def data_received(self, data: bytes) -> None:
        """Start the clock when bytes leave a frame or a message incomplete."""
        before = self._events
        super().data_received(data)
        if self._events > before and not self._between_fragments and not self.protocol.reader.buffer:
            self.unfinished_since = None
        elif self.unfinished_since is None or (self._events > before and not self._between_fragments):
            self.unfinished_since = time.monotonic()

    def drop(self) -> None:
        """Abort the connection without a closing frame, which a stalled client would not read."""
        self.transport.abort()
