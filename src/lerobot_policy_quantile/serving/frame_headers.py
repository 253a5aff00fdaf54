"""Frame headers in a websocket client's bytes, read before the websocket library parses the frames.

The library answers every ping and buffers every frame of what it is given, and one read can hold tens of thousands of
them. Walking the headers alone shows a flood before any of that work is done.
"""

from collections.abc import Iterator
from typing import NamedTuple

_END_OF_HANDSHAKE = b"\r\n\r\n"
_CONTROL = 0x08
_EXTENDED = {126: 2, 127: 8}
_MASK = 4


class FrameHeader(NamedTuple):
    """Of a frame that begins."""

    control: bool
    """Ping, pong or close."""
    size: int
    """Bytes of its payload."""


class FrameHeaders:
    """Walks one connection's bytes, in pieces of any size."""

    def __init__(self) -> None:
        self._before: bytes | None = b""
        """End of the handshake's bytes so far; None once the handshake is over."""
        self._header = bytearray()
        self._payload = 0
        """Bytes of the current frame's payload that are still to come."""

    def walk(self, data: bytes) -> Iterator[FrameHeader]:
        """The headers that are complete with `data`."""
        at = self._after_handshake(data)
        while at < len(data):
            skipped = min(self._payload, len(data) - at)
            self._payload -= skipped
            at += skipped
            if at == len(data):
                return
            self._header.append(data[at])
            at += 1
            if (size := self._size()) is not None:
                control = bool(self._header[0] & _CONTROL)
                self._payload = size
                self._header.clear()
                yield FrameHeader(control, size)

    def _after_handshake(self, data: bytes) -> int:
        if self._before is None:
            return 0
        seen = self._before + data
        end = seen.find(_END_OF_HANDSHAKE)
        if end < 0:
            self._before = seen[-len(_END_OF_HANDSHAKE) + 1 :]
            return len(data)
        at = end + len(_END_OF_HANDSHAKE) - len(self._before)
        self._before = None
        return at

    def _size(self) -> int | None:
        """Length of the payload if the header is complete, with the mask; None before."""
        if len(self._header) < 2:
            return None
        size = self._header[1] & 0x7F
        extended = _EXTENDED.get(size, 0)
        masked = _MASK if self._header[1] & 0x80 else 0
        if len(self._header) < 2 + extended + masked:
            return None
        return int.from_bytes(self._header[2 : 2 + extended]) if extended else size
