"""The policy server: openpi's websocket protocol with access control, input validation and time limits.

Connections without the token are refused (HTTP 401). Malformed requests are rejected before any inference. Clients that
send or read too slowly are disconnected. Inference runs beside the event loop. Actions are always finite.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from lerobot_policy_quantile.contract import Model
from lerobot_policy_quantile.serving.answering import Answering
from lerobot_policy_quantile.serving.batching import Batcher
from lerobot_policy_quantile.serving.byte_budget import ByteBudget
from lerobot_policy_quantile.serving.connection import WatchedConnection
from lerobot_policy_quantile.serving.descriptors import Handshakes, room_for
from lerobot_policy_quantile.serving.door import Door
from lerobot_policy_quantile.serving.metrics import Metrics
from lerobot_policy_quantile.serving.protocol import PROTOCOL_VERSION, SERVER_NAME
from lerobot_policy_quantile.serving.rates import Allowance
from lerobot_policy_quantile.serving.session import Connection, Sessions
from lerobot_policy_quantile.serving.settings import ServerSettings
from lerobot_policy_quantile.serving.wire import pack

log = logging.getLogger(__name__)

REFUSALS = (100.0, 200.0)
"""Errors that a connection is answered with, per second and at once; beyond that it waits for its answers."""


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
        model.begin(settings.first_seed, settings.decoder)  # refuses an unusable decoder before clients connect
        self.metrics.sessions.set_function(lambda: len(self._sessions))
        self.port = settings.port
        """Port it listens on; the actual one after `start` if 0 (any free port) was requested."""
        self._open: set[WatchedConnection] = set()
        self._under_way = 0
        self._room = room_for(settings.max_connections)
        if self._room.clients < settings.max_connections:
            log.warning("the limit of open files (ulimit -n) leaves room for %d clients", self._room.clients)
        self._handshakes = Handshakes(self._room.handshakes)
        self.metrics.handshakes.set_function(lambda: self._handshakes.dropped)
        self._budget = ByteBudget(settings.unread_bytes)
        self._door = Door(
            settings,
            self.metrics,
            stopping=self.stopping.is_set,
            clients=lambda: len(self._open),
            most=self._room.clients,
        )
        self._server: Server
        self._batcher: Batcher
        self._answering: Answering
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
            max_bytes=settings.decoded_bytes,
            clients=lambda: len(self._open),
        )
        self._answering = Answering(
            self._model, settings, self.metrics, self._sessions, self._batcher, self.stopping.is_set
        )
        self._cleanup = asyncio.create_task(self._watch())
        self._server = await serve(
            self._handle,
            settings.host,
            settings.port,
            process_request=self._door.admit,
            create_connection=partial(  # type: ignore[arg-type]  # any callable does
                WatchedConnection, budget=self._budget, handshakes=self._handshakes
            ),
            compression=None,  # no decompression of untrusted data
            origins=[None],  # refuses web pages, which a browser would let connect to localhost
            max_size=settings.limits.size,
            max_queue=1,
            open_timeout=settings.message_timeout,
            close_timeout=1.0,
            ssl=settings.tls(),
            server_header=None,
            backlog=self._room.backlog,
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

    async def _watch(self) -> None:
        """Drop connections with overdue messages and sessions that are no longer used."""
        while True:
            await asyncio.sleep(min(0.5, self._settings.message_timeout / 4))
            now = time.monotonic()
            limits = self._settings.message_timeout, self._settings.deadline
            for connection in list(self._open):
                since = connection.unfinished_since, connection.waiting_since
                if any(at is not None and now - at > limit for at, limit in zip(since, limits, strict=True)):
                    self.metrics.refused.labels("slow").inc()
                    connection.drop()
            self._sessions.forget_idle()

    # --- a connection -----------------------------------------------------------------------------

    async def _handle(self, connection: ServerConnection) -> None:
        if not isinstance(connection, WatchedConnection):
            raise TypeError(f"connection must be watched; got {type(connection).__name__}")
        self._open.add(connection)
        self.metrics.connections.set(len(self._open))
        state = Connection(peer=connection.peer, token=connection.token)
        try:
            await self._exchange(connection, state)
        except ConnectionClosed:
            pass  # the client disconnected
        except TimeoutError:
            self.metrics.refused.labels("slow").inc()
            connection.drop()
        finally:
            self._open.discard(connection)
            self._sessions.leave(state)
            if connection.flooded:
                self.metrics.refused.labels("flood").inc()
            self.metrics.connections.set(len(self._open))

    async def _exchange(self, connection: WatchedConnection, state: Connection) -> None:
        refusals = Allowance(*REFUSALS)
        await self._send(connection, pack(self.metadata()))
        while True:
            frame = await connection.recv()
            arrived = time.monotonic()
            self._under_way += 1
            try:
                request = self._answering.read(frame, state)
                connection.unread.decoded(len(frame.encode() if isinstance(frame, str) else frame))
                del frame  # only the decoded observation is kept while the request waits
                answering = self._answering.reply(request, state, arrived)
                del request
                reply, go_on = await answering
                self.metrics.latency.observe(time.monotonic() - arrived)
                await self._send(connection, reply)
            finally:
                self._under_way -= 1
            if not go_on:
                await connection.close(1011, "the error is in the frame before")
                return
            if isinstance(reply, str) and (early := refusals.spend()):
                await asyncio.sleep(early)  # meanwhile nothing more is read from this connection

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
            "hands_over": spec.left_over_bounds is not None,
            **({} if spec.bounds is None else {"bounds": spec.bounds}),
            "decoder": self._settings.decoder or spec.decoder,
            "deadline": self._settings.deadline,
            "max_age": self._settings.max_age,
            "prompt_tokens": None if spec.prompt_limit is None else spec.prompt_limit.most,
        }
