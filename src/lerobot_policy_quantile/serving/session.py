"""Sessions: the state of an episode, kept separately from connections.

A connection has its own session and can open further ones or name an earlier one of the same token: a robot that lost
its connection continues with the same latents. Unused sessions are dropped after a while; a connection that opens too
many loses its own oldest one, never another connection's. When all places are taken, sessions that nobody uses make
room, first those of closed connections that never asked for an action; a peer that has its share loses its own.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lerobot_policy_quantile.contract import Array, Model
from lerobot_policy_quantile.serving.alarm import AlarmMonitor
from lerobot_policy_quantile.serving.protocol import BLOCK, ErrorKind, RequestError
from lerobot_policy_quantile.serving.request import RequestOptions
from lerobot_policy_quantile.serving.transit import TransitEstimate
from lerobot_policy_quantile.util.digests import seed_of


@dataclass
class Session:
    """Consecutive episodes of one client."""

    name: str
    seed: int
    """Seed of the first episode; seeds of later episodes are derived from it unless given."""
    decoder: str | None
    memory: Any
    episode: int = 0
    sequence: int = -1
    fingerprint: bytes = b""
    """Of the last numbered request, to recognise a repeated one."""
    answer: bytes = b""
    last_action: Array | None = None
    busy: bool = False
    used: float = 0.0
    token: bytes = b""
    """Digest of the token it was begun with; empty where no token is needed."""
    peer: str = ""
    """Address it was begun from."""
    open: bool = True
    """Whether the connection that used it last is open."""
    monitor: AlarmMonitor | None = None
    """Of the current episode, where the server has an alarm."""
    steps: int = 0
    """Control steps of the episode, if every chunk is executed as far as the policy says."""
    asked: bool = False
    """Whether an action was ever computed for it."""
    owner: object = None
    """Identity of the connection that used it last; not the connection itself, which would create a reference cycle
    and keep a dropped session in memory."""


@dataclass
class Connection:
    """State of one connection."""

    session: Session | None = None
    ours: bool = False
    """Whether the client has sent a `qhead` entry; then errors leave the connection open."""
    opened: list[Session] = field(default_factory=list)
    peer: str = ""
    token: bytes = b""
    """Digest of the token it was opened with."""
    transit: TransitEstimate = field(default_factory=TransitEstimate)
    identity: object = field(default_factory=object)


SEEDS = 2**63
"""Seeds lie below this."""


def episode_seed(seed: int, episode: int) -> int:
    """Seed of the n-th episode of a session; the first episode has the session's seed."""
    if episode == 0:
        return seed
    return seed_of(f"episode {seed} {episode}")


IN_USE = 60.0
"""Seconds after its last request during which a session is not given away, unless nothing was ever asked of it."""
AT_ONCE = 64
"""Most sessions that make room at once: looking for them takes time."""


class Sessions:
    """All sessions of a server."""

    def __init__(
        self,
        model: Model,
        *,
        first_seed: int = 0,
        decoder: str | None = None,
        per_connection: int = 16,
        limit: int = 4096,
        per_peer: int = 1024,
        idle: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model, self._next_seed, self._decoder = model, first_seed, decoder
        self._per_connection, self._limit, self._per_peer = per_connection, limit, per_peer
        self._idle, self._clock = idle, clock
        self._sessions: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, options: RequestOptions, connection: Connection) -> Session:
        """The session of a request, with a new episode if the request resets it."""
        if options.session is not None:
            session = self._known(options.session, connection)
            self._adopt(session, connection)
        elif options.new_session or connection.session is None or connection.session.name not in self._sessions:
            session = self._begin(options, connection)
            if connection.session is None or not options.new_session:
                connection.session = session
            return session
        else:
            session = connection.session
        if session.busy:
            raise RequestError(ErrorKind.BUSY, "the session's last request is still being answered; wait for it")
        session.used = self._clock()
        if options.reset:
            self._reset(session, options)
        return session

    def repeated(self, options: RequestOptions, connection: Connection, fingerprint: bytes) -> bytes:
        """The stored answer to a repeated request; empty if the request is new."""
        session = self._sessions.get(options.session) if options.session else connection.session
        if session is None or session.token != connection.token or not fingerprint:
            return b""
        return session.answer if session.fingerprint == fingerprint else b""

    def leave(self, connection: Connection) -> None:
        """A connection was closed: its sessions wait for another one."""
        for session in connection.opened:
            if session.owner is connection.identity:
                session.open = False

    def _known(self, name: str, connection: Connection) -> Session:
        session = self._sessions.get(name)
        if session is None or session.token != connection.token:
            raise RequestError(
                ErrorKind.UNKNOWN_SESSION,
                "this session was never begun here, has expired or was lost with a restart; begin a new one",
                f"{BLOCK}.session",
            )
        return session

    def _adopt(self, session: Session, connection: Connection) -> None:
        if session.owner is not connection.identity:
            session.owner, session.open = connection.identity, True
            self._remember(session, connection)

    def _begin(self, options: RequestOptions, connection: Connection) -> Session:
        self._make_room(connection)
        seed = self._next_seed if options.seed is None else options.seed
        decoder = self._decoder if options.decoder is None else options.decoder
        memory = self._memory(seed, decoder)
        self._next_seed = (self._next_seed + (options.seed is None)) % SEEDS
        session = Session(
            secrets.token_hex(16),
            seed,
            decoder,
            memory,
            used=self._clock(),
            token=connection.token,
            peer=connection.peer,
            owner=connection.identity,
        )
        self._sessions[session.name] = session
        self._remember(session, connection)
        return session

    def _make_room(self, connection: Connection) -> None:
        """A place for one more session, or RequestError if all are in use."""
        self.forget_idle()
        if len(self._sessions) >= self._per_peer:
            own = [session for session in self._sessions.values() if session.peer == connection.peer]
            if len(own) >= self._per_peer and not self._evict(own):
                raise RequestError(ErrorKind.BUSY, f"all {self._per_peer} sessions of one address are in use")
        if len(self._sessions) >= self._limit and not self._evict(list(self._sessions.values())):
            raise RequestError(ErrorKind.BUSY, f"the server keeps {self._limit} sessions and all are in use")

    def _evict(self, candidates: list[Session]) -> bool:
        """Drop the least useful of these sessions; False if all are in use."""
        recent = self._clock() - IN_USE
        unused = [s for s in candidates if not s.busy and (s.used < recent or not (s.asked or s.open))]
        if not unused:
            return False
        worth = min((s.asked, s.open) for s in unused)
        alike = sorted((s for s in unused if (s.asked, s.open) == worth), key=lambda s: s.used)
        for session in alike[:AT_ONCE]:
            del self._sessions[session.name]
        return True

    def _remember(self, session: Session, connection: Connection) -> None:
        connection.opened.append(session)
        while len(connection.opened) > self._per_connection:
            oldest = connection.opened.pop(0)
            if oldest.owner is connection.identity and not oldest.busy:
                self._sessions.pop(oldest.name, None)

    def _reset(self, session: Session, options: RequestOptions) -> None:
        decoder = session.decoder if options.decoder is None else options.decoder
        episode = session.episode + 1
        seed = episode_seed(session.seed, episode) if options.seed is None else options.seed
        session.memory = self._memory(seed, decoder)
        session.decoder, session.episode, session.sequence, session.last_action = decoder, episode, -1, None
        session.monitor, session.steps = None, 0
        session.fingerprint = session.answer = b""

    def _memory(self, seed: int, decoder: str | None) -> Any:
        try:
            return self._model.begin(seed, decoder)
        except ValueError as error:
            raise RequestError(ErrorKind.INVALID, str(error), f"{BLOCK}.decoder") from None

    def forget_idle(self) -> None:
        """Drop sessions that have not been used for the idle time."""
        horizon = self._clock() - self._idle
        for name in [s.name for s in self._sessions.values() if s.used < horizon and not s.busy]:
            del self._sessions[name]
