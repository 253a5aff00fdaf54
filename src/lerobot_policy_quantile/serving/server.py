"""The policy server: openpi's websocket protocol with access control, input validation and time limits.

Connections without the token are refused (HTTP 401). Malformed requests are rejected before any inference. Clients that
send or read too slowly are disconnected. Inference runs beside the event loop. Actions are always finite.
"""

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import numpy as np
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request as HttpRequest
from websockets.http11 import Response

from lerobot_policy_quantile.contract import Model
from lerobot_policy_quantile.serving.batching import Batcher, Computed
from lerobot_policy_quantile.serving.connection import WatchedConnection
from lerobot_policy_quantile.serving.guard import Guard, NothingToHoldError
from lerobot_policy_quantile.serving.metrics import CONTENT_TYPE, Metrics
from lerobot_policy_quantile.serving.protocol import (
    BLOCK,
    PROTOCOL_VERSION,
    SERVER_NAME,
    ErrorKind,
    RequestError,
)
from lerobot_policy_quantile.serving.request import Request, RequestOptions, parse_request
from lerobot_policy_quantile.serving.session import Connection, Session, Sessions
from lerobot_policy_quantile.serving.spread import motion_spread, spread
from lerobot_policy_quantile.serving.wire import Limits, WireError, pack, unpack

log = logging.getLogger(__name__)

HEALTH, METRICS = "/healthz", "/metrics"


@dataclass(frozen=True)
class ServerSettings:
    """Address, access and limits. The defaults suit one machine and a few robots. Times are in seconds."""

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    certificate: str | None = None
    key: str | None = None
    limits: Limits = field(default_factory=Limits)
    guard: Guard = field(default_factory=Guard)
    max_batch: int = 16
    max_queue: int = 64
    window: float = 0.003
    deadline: float = 10.0
    """Longest wait for an answer; a request may set a shorter one."""
    max_age: float = 1.0
    """Largest age of an observation, if the client reports it."""
    max_connections: int = 256
    message_timeout: float = 6.0
    """Longest time from a message's first byte to its last, and for reading an answer."""
    drain: float = 10.0
    """Time to finish requests in progress when stopping."""
    first_seed: int = 0
    decoder: str | None = None
    sessions_per_connection: int = 16
    idle: float = 600.0
    """Time after which an unused session is dropped."""

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not self.token:
            raise ValueError(
                f"host {self.host} can be reached from other machines: a token is needed; set QHEAD_TOKEN,"
                " or serve on 127.0.0.1"
            )
        if self.token is not None and len(self.token) < 16:
            raise ValueError(f"token must have at least 16 characters; got {len(self.token)}")
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key must be given together")
        for name in ("max_batch", "max_queue", "max_connections", "deadline", "max_age", "message_timeout"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive; got {getattr(self, name)}")
        if self.window < 0 or self.drain < 0:
            raise ValueError(f"window and drain must not be negative; got {self.window} and {self.drain}")

    def tls(self) -> ssl.SSLContext | None:
        """TLS context with the certificate; None without one."""
        if self.certificate is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self.key)
        return context


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine only; of names, only localhost counts."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class PolicyServer:
    """Serves a model. Call `start` and `stop`, or `run` until `stopping` is set."""

    def __init__(self, model: Model, settings: ServerSettings) -> None:
        settings.guard.require_fits(model.spec.action_dim)
        self._model, self._settings = model, settings
        self.metrics = Metrics()
        self.stopping = asyncio.Event()
        self._sessions = Sessions(
            model,
            first_seed=settings.first_seed,
            decoder=settings.decoder,
            per_connection=settings.sessions_per_connection,
            idle=settings.idle,
        )
        if settings.decoder is not None:
            model.begin(0, settings.decoder)  # refuses an unknown decoder before clients connect
        self.port = settings.port
        """Port it listens on; the actual one after `start` if 0 (any free port) was requested."""
        self._open: set[WatchedConnection] = set()
        self._under_way = 0
        self._server: Server
        self._batcher: Batcher
        self._cleanup: asyncio.Task[None]

    async def start(self) -> None:
        """Start listening."""
        settings = self._settings
        self._batcher = Batcher(
            self._model,
            self.metrics,
            max_batch=settings.max_batch,
            max_queue=settings.max_queue,
            window=settings.window,
            clients=lambda: len(self._open),
        )
        self._cleanup = asyncio.create_task(self._watch())
        self._server = await serve(
            self._handle,
            settings.host,
            settings.port,
            process_request=self._admit,
            create_connection=WatchedConnection,
            compression=None,  # no decompression of untrusted data
            origins=[None],  # refuses web pages, which a browser would let connect to localhost
            max_size=settings.limits.size,
            max_queue=1,
            open_timeout=settings.message_timeout,
            close_timeout=1.0,
            ssl=settings.tls(),
            server_header=None,
        )
        self.port = next(iter(self._server.sockets)).getsockname()[1]

    async def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Listen until `stopping` is set, then drain."""
        await self.start()
        ready()
        await self.stopping.wait()
        await self.stop()

    async def stop(self) -> None:
        """Refuse new connections and requests, finish those in progress, close."""
        self.stopping.set()
        self._server.close(close_connections=False)
        until = time.monotonic() + self._settings.drain
        while self._under_way and time.monotonic() < until:
            await asyncio.sleep(0.01)
        await asyncio.gather(*(c.close(1001, "the server is stopping") for c in self._open), return_exceptions=True)
        self._cleanup.cancel()
        await self._batcher.close()
        self._server.close()
        await self._server.wait_closed()

    # --- access -----------------------------------------------------------------------------------

    def _admit(self, connection: ServerConnection, request: HttpRequest) -> Response | None:
        """Refuse a connection, or None to accept it. Only /healthz works without the token."""
        path = request.path.partition("?")[0]
        if path == HEALTH:
            if self.stopping.is_set():
                return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "stopping\n")
            return connection.respond(HTTPStatus.OK, "OK\n")
        if not self._has_token(request):
            self.metrics.refused.labels("token").inc()
            return connection.respond(
                HTTPStatus.UNAUTHORIZED, "a token is needed: Authorization: Api-Key followed by the server's token\n"
            )
        if path == METRICS:
            return self._metrics_page(connection)
        if self.stopping.is_set():
            return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "stopping\n")
        if len(self._open) >= self._settings.max_connections:
            self.metrics.refused.labels("full").inc()
            return connection.respond(
                HTTPStatus.SERVICE_UNAVAILABLE, f"busy: {self._settings.max_connections} clients are connected\n"
            )
        return None

    def _has_token(self, request: HttpRequest) -> bool:
        """Compare hashes in constant time, so that timing reveals neither content nor length of the token."""
        if self._settings.token is None:
            return True
        given = request.headers.get_all("Authorization")
        expected = f"Api-Key {self._settings.token}"
        return hmac.compare_digest(_hashed(given[0] if len(given) == 1 else ""), _hashed(expected))

    def _metrics_page(self, connection: ServerConnection) -> Response:
        self.metrics.sessions.set(len(self._sessions))
        response = connection.respond(HTTPStatus.OK, "")
        response.body = self.metrics.text()
        del response.headers["Content-Length"], response.headers["Content-Type"]
        response.headers["Content-Length"] = str(len(response.body))
        response.headers["Content-Type"] = CONTENT_TYPE
        return response

    async def _watch(self) -> None:
        """Drop connections with overdue messages and sessions that are no longer used."""
        while True:
            await asyncio.sleep(min(0.5, self._settings.message_timeout / 4))
            late = time.monotonic() - self._settings.message_timeout
            for connection in [c for c in self._open if c.unfinished_since is not None and c.unfinished_since < late]:
                self.metrics.refused.labels("slow").inc()
                connection.drop()
            self._sessions.forget_idle()

    # --- a connection -----------------------------------------------------------------------------

    async def _handle(self, connection: ServerConnection) -> None:
        if not isinstance(connection, WatchedConnection):
            raise TypeError(f"connection must be watched; got {type(connection).__name__}")
        self._open.add(connection)
        self.metrics.connections.set(len(self._open))
        try:
            await self._exchange(connection, Connection())
        except ConnectionClosed:
            pass  # the client disconnected
        except TimeoutError:
            self.metrics.refused.labels("slow").inc()
            connection.drop()
        finally:
            self._open.discard(connection)
            self.metrics.connections.set(len(self._open))

    async def _exchange(self, connection: WatchedConnection, state: Connection) -> None:
        await self._send(connection, pack(self.metadata()))
        while True:
            frame = await connection.recv()
            arrived = time.monotonic()
            self._under_way += 1
            try:
                reply, go_on = await self._reply(frame, state, arrived)
                self.metrics.latency.observe(time.monotonic() - arrived)
                await self._send(connection, reply)
            finally:
                self._under_way -= 1
            if not go_on:
                await connection.close(1011, "the error is in the frame before")
                return

    async def _send(self, connection: WatchedConnection, frame: bytes | str) -> None:
        """Send a frame; TimeoutError if the client does not read it in time."""
        async with asyncio.timeout(self._settings.message_timeout):
            await connection.send(frame)

    def metadata(self) -> dict[str, Any]:
        """The first frame of a connection."""
        spec = self._model.spec
        return {
            "server": SERVER_NAME,
            "protocol": PROTOCOL_VERSION,
            "context": dict(spec.context),
            "cameras": list(spec.cameras),
            "state_dim": spec.state_dim,
            "action_dim": spec.action_dim,
            "chunk_size": spec.chunk_size,
            "n_action_steps": spec.n_action_steps,
            "levels": list(spec.levels),
            "grippers": list(spec.grippers),
            "decoder": self._settings.decoder or spec.decoder,
            "deadline": self._settings.deadline,
            "max_age": self._settings.max_age,
        }

    # --- a request --------------------------------------------------------------------------------

    async def _reply(self, frame: bytes | str, state: Connection, arrived: float) -> tuple[bytes | str, bool]:
        """The answer's frame, and whether the connection stays open."""
        try:
            message = self._message(frame)
            state.ours |= isinstance(message, dict) and isinstance(message.get(BLOCK), dict)
            request = parse_request(message, self._model.spec)
            answer = await self._answer(request, frame, state, arrived)
        except RequestError as error:
            self.metrics.requests.labels("refused").inc()
            self.metrics.errors.labels(error.kind).inc()
            return error.text(), state.ours
        except Exception:  # any other failure must not end the server; details go to the log
            log.exception("a request failed in the server")
            self.metrics.requests.labels("failed").inc()
            self.metrics.errors.labels(ErrorKind.INFERENCE).inc()
            return RequestError(ErrorKind.INFERENCE, "the server failed; see its log").text(), state.ours
        self.metrics.requests.labels("answered").inc()
        return answer, True

    def _message(self, frame: bytes | str) -> Any:
        if self.stopping.is_set():
            raise RequestError(ErrorKind.STOPPING, "the server is stopping")
        if isinstance(frame, str):
            raise RequestError(ErrorKind.MALFORMED, "requests are binary frames of msgpack; got a text frame")
        try:
            return unpack(frame, self._settings.limits)
        except WireError as error:
            raise RequestError(ErrorKind.MALFORMED, str(error)) from None

    async def _answer(self, request: Request, frame: bytes | str, state: Connection, arrived: float) -> bytes:
        options = request.options
        if options.want and not self._model.spec.levels:
            raise RequestError(ErrorKind.INVALID, "this policy predicts no quantiles; leave want out", f"{BLOCK}.want")
        age = options.age + state.transit(options.sent, arrived)
        if age > self._settings.max_age and request.observation is not None:
            raise RequestError(
                ErrorKind.STALE, f"the observation is {age:.3f} s old; at most {self._settings.max_age:g} s", "age"
            )
        fingerprint = b"" if options.sequence is None else _fingerprint(frame)
        if repeated := self._sessions.repeated(options, state, fingerprint):
            return repeated  # a retry of a request whose answer was lost: the episode must not advance twice
        session = self._sessions.find(options, state)
        if request.observation is None:
            return pack({BLOCK: _about(session)})
        if options.sequence is not None and options.sequence <= session.sequence:
            raise RequestError(
                ErrorKind.OUT_OF_ORDER,
                f"sequence must increase; got {options.sequence} after {session.sequence}",
                f"{BLOCK}.sequence",
            )
        session.busy = True
        try:
            computed = await self._batcher.compute(
                request.observation,
                session.memory,
                deadline=arrived + min(options.deadline or self._settings.deadline, self._settings.deadline),
                stale_at=arrived + self._settings.max_age - age if options.sent is not None or options.age else np.inf,
            )
        finally:
            session.busy = False
        answer = pack(self._compose(computed, session, options))
        if options.sequence is not None:
            session.sequence, session.fingerprint, session.answer = options.sequence, fingerprint, answer
        return answer

    def _compose(self, computed: Computed, session: Session, options: RequestOptions) -> dict[str, Any]:
        prediction = computed.prediction
        try:
            guarded = self._settings.guard.check(prediction.actions, session.last_action)
        except NothingToHoldError as error:
            raise RequestError(ErrorKind.INFERENCE, str(error)) from None
        self.metrics.guarded.inc(guarded.steps_changed)
        session.last_action = np.array(guarded.actions[-1])
        answer: dict[str, Any] = {"actions": guarded.actions}
        if prediction.quantiles is not None:
            widths = spread(prediction.quantiles, self._model.spec.levels)
            doubt = motion_spread(widths, self._model.spec.grippers).mean()
            self.metrics.spread.observe(float(np.nan_to_num(doubt, posinf=1e9)))
            extras = {"quantiles": prediction.quantiles, "spread": widths, "ranks": prediction.ranks}
            answer |= {name: extras[name] for name in options.want if extras[name] is not None}
        answer["server_timing"] = {
            "queue_ms": 1e3 * computed.queue_seconds,
            "infer_ms": 1e3 * computed.infer_seconds,
            "batch_size": computed.batch_size,
        }
        about = _about(session) | {"guarded_steps": guarded.steps_changed}
        return answer | {BLOCK: about | ({} if options.sequence is None else {"sequence": options.sequence})}


def _about(session: Session) -> dict[str, Any]:
    about: dict[str, Any] = {"session": session.name, "episode": session.episode}
    return about if session.decoder is None else about | {"decoder": session.decoder}


def _hashed(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogateescape")).digest()


def _fingerprint(frame: bytes | str) -> bytes:
    """Digest of a request's frame: a repeated request has exactly the same bytes."""
    return hashlib.blake2b(frame.encode() if isinstance(frame, str) else frame, digest_size=16).digest()
