"""A client of openpi's websocket protocol, for `qhead serve` and for any other openpi server.

One request at a time, each with a time limit: if the server is killed, hangs or becomes unreachable, `ServerGoneError`
is raised within that limit.
"""

import ssl
from collections.abc import Mapping
from contextlib import ExitStack
from http import HTTPStatus
from types import TracebackType
from typing import Any, NoReturn, Self

from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI, WebSocketException
from websockets.sync.client import ClientConnection, connect

from lerobot_policy_quantile.serving.protocol import BLOCK, SERVER_NAME, parse_error
from lerobot_policy_quantile.serving.wire import Limits, WireError, pack, unpack

ANSWER_LIMITS = Limits(size=64 * 2**20)


class ServerGoneError(ConnectionError):
    """Server not reachable, no answer in time, or an unreadable answer. Reconnect to continue."""


class WrongTokenError(ServerGoneError):
    """The server refused the token (HTTP 401)."""


class ServerRefusedError(RuntimeError):
    """Another openpi server answered with an error; the message is the server's."""


class PolicyClient:
    """A connection to a policy server, opened on construction.

    `token` is sent as `Authorization: Api-Key ...`; `ca` is a certificate file to trust for wss:// addresses.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        ca: str | None = None,
        timeout: float = 10.0,
        connect_timeout: float = 10.0,
    ) -> None:
        if not url.startswith(("ws://", "wss://")):
            raise ValueError(f"url must begin with ws:// or wss://; got {url!r}")
        self.url, self.timeout = url, timeout
        self._token, self._ca, self._connect_timeout = token, ca, connect_timeout
        self.metadata: dict[str, Any] = {}
        self._socket: ClientConnection | None = None
        self._open_socket = ExitStack()
        self.connect()

    @property
    def ours(self) -> bool:
        """Whether it is a `qhead serve` server, with sessions, decoders and quantiles."""
        return self.metadata.get("server") == SERVER_NAME

    @property
    def connected(self) -> bool:
        """Whether the connection is open."""
        return self._socket is not None

    def connect(self) -> None:
        """Open or reopen the connection and read the server's metadata."""
        self.close()
        headers = {"Authorization": f"Api-Key {self._token}"} if self._token else None
        tls = ssl.create_default_context(cafile=self._ca) if self.url.startswith("wss://") else None
        try:
            self._socket = self._open_socket.enter_context(
                connect(
                    self.url,
                    compression=None,
                    max_size=ANSWER_LIMITS.size,
                    additional_headers=headers,
                    open_timeout=self._connect_timeout,
                    close_timeout=0.5,
                    ssl=tls,
                )
            )
        except InvalidStatus as error:
            kind = WrongTokenError if error.response.status_code == HTTPStatus.UNAUTHORIZED else ServerGoneError
            raise kind(f"{self.url} refused the connection: {_words(error)}") from None
        except InvalidURI as error:
            raise ValueError(f"url must be a websocket address; {error}") from None
        except (OSError, EOFError, InvalidHandshake, WebSocketException) as error:
            raise ServerGoneError(f"{self.url} cannot be reached: {_short(error)}") from None
        metadata = self._receive()
        if not isinstance(metadata, dict):
            raise self._lost(f"sent no metadata map but a {type(metadata).__name__}")
        self.metadata = metadata

    def infer(self, observation: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        """The server's answer to an observation; `options` become the request's `qhead` entry."""
        frame = pack({**observation, BLOCK: options} if options else dict(observation))
        if self._socket is None:
            self.connect()
        try:
            self._open().send(frame)
        except (OSError, WebSocketException) as error:
            raise self._lost(f"closed the connection: {_short(error)}") from None
        answer = self._receive()
        if not isinstance(answer, dict):
            raise self._lost(f"answered with a {type(answer).__name__}, not a map")
        return answer

    def _open(self) -> ClientConnection:
        if self._socket is None:
            raise ServerGoneError(f"{self.url} is not connected")
        return self._socket

    def _receive(self) -> Any:
        try:
            frame = self._open().recv(timeout=self.timeout)
        except TimeoutError:  # a late answer must not be taken for the next request's, so the connection is dropped
            raise self._lost(f"gave no answer within {self.timeout:g} s") from None
        except (OSError, EOFError, WebSocketException) as error:
            raise self._lost(f"closed the connection: {_short(error)}") from None
        if isinstance(frame, str):
            self._refused(frame)
        try:
            return unpack(frame, ANSWER_LIMITS)
        except WireError as error:
            raise self._lost(f"sent what cannot be read: {error}") from None

    def _refused(self, text: str) -> NoReturn:
        """Raise the error in a text frame. The server decides whether the connection stays open."""
        error = parse_error(text) if self.ours or not self.metadata else None
        if error is None:
            self.close()
            raise ServerRefusedError(f"{self.url} answered with an error: {text[:2000]}")
        raise error

    def _lost(self, reason: str) -> ServerGoneError:
        self.close()
        return ServerGoneError(f"{self.url} {reason}")

    def close(self) -> None:
        """Close the connection, if it is open."""
        self._socket = None
        self._open_socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _words(error: InvalidStatus) -> str:
    body = (error.response.body or b"").decode(errors="replace").strip()
    return f"{error.response.status_code} {body[:300]}".strip()


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"
