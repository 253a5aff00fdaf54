"""A websocket client for the fuzzer: fast, blocking, and able to send what the protocol forbids.

Frames are masked with a key of zeros, which the protocol allows and which leaves them as they are. Many can be sent
before the first answer is read.
"""

import socket
import struct
from collections.abc import Iterable
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlsplit

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
_FINAL, _MASKED = 0x80, 0x80
_NO_MASK = b"\0\0\0\0"


class Frame(NamedTuple):
    """What arrived."""

    opcode: int
    data: bytes


def encode(message: bytes | str, opcode: int | None = None) -> bytes:
    """One unfragmented message of a client."""
    data = message.encode() if isinstance(message, str) else message
    first = _FINAL | (opcode if opcode is not None else TEXT if isinstance(message, str) else BINARY)
    if len(data) < 126:
        header = struct.pack(">BB", first, _MASKED | len(data))
    elif len(data) < 2**16:
        header = struct.pack(">BBH", first, _MASKED | 126, len(data))
    else:
        header = struct.pack(">BBQ", first, _MASKED | 127, len(data))
    return header + _NO_MASK + data


class RawWebSocket:
    """A connection, from its handshake on. EOFError when the server has closed it."""

    def __init__(self, url: str, timeout: float = 60.0) -> None:
        address = urlsplit(url)
        self._socket = socket.create_connection((address.hostname, address.port), timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read = self._socket.makefile("rb")
        self._socket.sendall(
            f"GET / HTTP/1.1\r\nHost: {address.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        status = self._read.readline()
        if b" 101 " not in status:
            raise ConnectionError(f"{url} refused the connection: {status.decode(errors='replace').strip()}")
        while self._read.readline().strip():
            pass

    def send(self, messages: Iterable[bytes | str]) -> None:
        """All messages at once."""
        self.send_raw(b"".join(map(encode, messages)))

    def send_raw(self, data: bytes) -> None:
        """Bytes that need not be frames."""
        self._socket.sendall(data)

    def receive(self) -> Frame:
        """The next message or the server's close; pings are answered on the way."""
        while True:
            first, size = self._exactly(2)
            if size == 126:
                (size,) = struct.unpack(">H", self._exactly(2))
            elif size == 127:
                (size,) = struct.unpack(">Q", self._exactly(8))
            frame = Frame(first & 0x0F, self._exactly(size))
            if frame.opcode != PING:
                return frame
            self.send_raw(encode(frame.data, PONG))

    def _exactly(self, size: int) -> bytes:
        data = self._read.read(size)
        if len(data) < size:
            raise EOFError("the server closed the connection")
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._read.close()
        self._socket.close()
