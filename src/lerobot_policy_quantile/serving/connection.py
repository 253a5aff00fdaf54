"""A websocket connection that is watched: for messages that never end, and for floods of frames.

A client that sends one byte per second can keep a message incomplete forever, in one frame or in many fragments, and
the websocket library waits for it. The server drops connections whose message has been incomplete for too long. A
client that sends pings or fragments without end is closed before the library has parsed them.
"""

import asyncio
import logging
import time
from dataclasses import replace
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import State

from lerobot_policy_quantile.serving.byte_budget import ByteBudget, UnreadMessages
from lerobot_policy_quantile.serving.descriptors import Handshakes
from lerobot_policy_quantile.serving.frame_headers import FrameHeaders
from lerobot_policy_quantile.serving.rates import Allowance

log = logging.getLogger(__name__)

_DATA = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)

CONTROL_FRAMES = (20.0, 100.0)
"""Pings and pongs of a connection: per second on average, and at once."""
DATA_FRAMES = (200.0, 300.0)
"""Messages and fragments of messages, likewise."""


class WatchedConnection(ServerConnection):
    """`unfinished_since` is the `time.monotonic()` of an incomplete message's first byte; None between messages."""

    def __init__(self, *arguments: Any, budget: ByteBudget, handshakes: Handshakes, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.unfinished_since: float | None = None
        self.waiting_since: float | None = None
        """Since when a large message has waited to be read."""
        self.flooded = False
        """Whether it was closed for sending too many frames."""
        self.token = b""
        """Digest of the token it was admitted with; empty where none is needed."""
        self._events = 0
        self._between_fragments = False
        self._headers = FrameHeaders()
        self._handshakes = handshakes
        self.unread = UnreadMessages(budget, self._regulate)
        self._held_back = False
        """Whether the library wants no more to be read."""
        self._control, self._data = Allowance(*CONTROL_FRAMES), Allowance(*DATA_FRAMES)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Reading is held back by the library, when messages queue, and by the budget of unread bytes."""
        super().connection_made(transport)
        self._handshakes.begin(self)
        self.recv_messages.pause, self.recv_messages.resume = (lambda: self._hold(True)), (lambda: self._hold(False))

    def connection_lost(self, exc: Exception | None) -> None:
        """Return what was reserved."""
        self._handshakes.end(self)
        self.unread.close()
        super().connection_lost(exc)

    def _hold(self, back: bool) -> None:
        self._held_back = back
        self._regulate()

    def _regulate(self) -> None:
        if self.transport.is_closing():
            return
        if self._held_back or self.unread.waiting:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()
        if self.unread.waiting:
            self.unfinished_since = None  # it waits for us, not we for it
            self.waiting_since = self.waiting_since or time.monotonic()
            return
        self.waiting_since = None
        if self.protocol.reader.buffer and self.unfinished_since is None:
            self.unfinished_since = time.monotonic()

    @property
    def peer(self) -> str:
        """Address of the client."""
        address = self.remote_address
        return str(address[0]) if address else ""

    def process_event(self, event: Any) -> None:
        """Count frames and the handshake; a data frame without the final flag leaves the message incomplete.

        The library's parser refers to a frame until the next one is complete, be it the pong to a ping: a message per
        client for up to 20 s. It is left with an empty frame.
        """
        self._events += 1
        self._handshakes.end(self)
        if not (isinstance(event, Frame) and event.opcode in _DATA):
            super().process_event(event)
            return
        self._between_fragments = not event.fin
        super().process_event(replace(event))
        event.data = b""

    def data_received(self, data: bytes) -> None:
        """Close a flood unparsed; start the clock when bytes leave a frame or a message incomplete."""
        if self.flooded or self._floods(data):
            return
        before = self._events
        super().data_received(data)
        if self._events > before and not self._between_fragments and not self.protocol.reader.buffer:
            self.unfinished_since = None
        elif self.unfinished_since is None or (self._events > before and not self._between_fragments):
            self.unfinished_since = time.monotonic()
        if self.unread.waiting:
            self._regulate()

    def _floods(self, data: bytes) -> bool:
        for control, size in self._headers.walk(data):
            if (self._control if control else self._data).spend():
                self._close_flood("control" if control else "data")
                return True
            if not control and self.protocol.state is State.CLOSING:
                self.transport.close()  # it goes on sending although it was told that the connection ends
                return True
            if not control:
                self.unread.announce(size)
        return False

    def _close_flood(self, kind: str) -> None:
        rate, burst = CONTROL_FRAMES if kind == "control" else DATA_FRAMES
        self.flooded = True
        log.warning("closed a connection that sent too many %s frames", kind)
        self.protocol.fail(
            CloseCode.POLICY_VIOLATION, f"at most {rate:g} {kind} frames a second, {burst:g} at once; send fewer"
        )
        self.send_data()
        self.transport.close()
        self.loop.call_later(1.0, self.transport.abort)  # if the client does not read

    def drop(self) -> None:
        """Abort the connection without a closing frame, which a stalled client would not read."""
        self.transport.abort()
