"""A websocket connection that knows since when a message has been on its way in.

A client that sends one byte a second keeps a message unfinished for ever, in one frame or in many fragments; the
websocket library waits for it. We note when the first byte of an unfinished message came, and the server's watchman
drops the connection when it has taken too long.
"""

import time
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.frames import Frame, Opcode

_DATA = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)


class WatchedConnection(ServerConnection):
    """`unfinished_since` is None between messages."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.unfinished_since: float | None = None
        self._events = 0
        self._between_fragments = False

    def process_event(self, event: Any) -> None:
        """Count frames and the handshake; a data frame without its end leaves the message open."""
        self._events += 1
        if isinstance(event, Frame) and event.opcode in _DATA:
            self._between_fragments = not event.fin
        super().process_event(event)

    def data_received(self, data: bytes) -> None:
        """Bytes that complete no frame, or a frame that completes no message, start the clock."""
        before = self._events
        super().data_received(data)
        if self._events > before and not self._between_fragments and not self.protocol.reader.buffer:
            self.unfinished_since = None
        elif self.unfinished_since is None or (self._events > before and not self._between_fragments):
            self.unfinished_since = time.monotonic()

    def drop(self) -> None:
        """Cut the connection without a word: a slow reader would not hear it."""
        self.transport.abort()
