"""Sessions: what an episode remembers, kept apart from the connection it came through.

A connection has a session of its own and may open more or name one it had before: a robot that lost its network goes on
with the same latents. Sessions nobody has used for a while are forgotten, and a connection that opens too many forgets
its own oldest, never another's.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lerobot_policy_quantile.contract import Array, Model
from lerobot_policy_quantile.serving.protocol import BLOCK, ErrorKind, RequestError
from lerobot_policy_quantile.serving.request import Wishes
from lerobot_policy_quantile.util.digests import seed_of


@dataclass
class Session:
    """One client's episodes, one after the other."""

    name: str
    seed: int
    """Seed of the first episode; later ones without a seed of their own are derived from it."""
    decoder: str | None
    memory: Any
    episode: int = 0
    sequence: int = -1
    fingerprint: bytes = b""
    """Of the last numbered request, to know a repeated one."""
    answer: bytes = b""
    last_action: Array | None = None
    busy: bool = False
    used: float = 0.0
    owner: object = None
    """Badge of the connection that used it last; not the connection itself, which would make a cycle: a session that
    is forgotten shall be free at once."""


@dataclass
class Connection:
    """What the server remembers of one connection."""

    session: Session | None = None
    ours: bool = False
    """Whether the client has spoken our part of the protocol; then errors leave the connection open."""
    opened: list[Session] = field(default_factory=list)
    fastest: float | None = None
    """Smallest difference seen between our clock at arrival and the client's at sending."""
    badge: object = field(default_factory=object)

    def transit(self, sent: float | None, arrived: float) -> float:
        """How much longer than the fastest one this request was under way; clocks need not agree, only run."""
        if sent is None:
            return 0.0
        lag = arrived - sent
        self.fastest = lag if self.fastest is None else min(self.fastest, lag)
        return lag - self.fastest


def episode_seed(seed: int, episode: int) -> int:
    """The seed of the n-th episode of a session; the first one's is the session's own."""
    if episode == 0:
        return seed
    return seed_of(f"episode {seed} {episode}")


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
        idle: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model, self._next_seed, self._decoder = model, first_seed, decoder
        self._per_connection, self._limit, self._idle, self._clock = per_connection, limit, idle, clock
        self._sessions: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, wishes: Wishes, connection: Connection) -> Session:
        """The session a request speaks of, its episode begun anew if the request says so."""
        if wishes.session is not None:
            session = self._known(wishes.session)
            self._adopt(session, connection)
        elif wishes.new_session or connection.session is None or connection.session.name not in self._sessions:
            session = self._begin(wishes, connection)
            if connection.session is None or not wishes.new_session:
                connection.session = session
            return session
        else:
            session = connection.session
        if session.busy:
            raise RequestError(ErrorKind.BUSY, "the session's last request is still being answered; wait for it")
        session.used = self._clock()
        if wishes.reset:
            self._reset(session, wishes)
        return session

    def repeated(self, wishes: Wishes, connection: Connection, fingerprint: bytes) -> bytes:
        """The answer that a numbered request has had already; empty if it is new."""
        session = self._sessions.get(wishes.session) if wishes.session else connection.session
        return session.answer if session is not None and fingerprint and session.fingerprint == fingerprint else b""

    def _known(self, name: str) -> Session:
        session = self._sessions.get(name)
        if session is None:
            raise RequestError(
                ErrorKind.UNKNOWN_SESSION,
                "this session was never begun here, has expired or was lost with a restart; begin a new one",
                f"{BLOCK}.session",
            )
        return session

    def _adopt(self, session: Session, connection: Connection) -> None:
        if session.owner is not connection.badge:
            session.owner = connection.badge
            self._remember(session, connection)

    def _begin(self, wishes: Wishes, connection: Connection) -> Session:
        self.forget_idle()
        if len(self._sessions) >= self._limit:
            raise RequestError(ErrorKind.BUSY, f"the server keeps {self._limit} sessions and all are in use")
        seed = self._next_seed if wishes.seed is None else wishes.seed
        decoder = self._decoder if wishes.decoder is None else wishes.decoder
        memory = self._memory(seed, decoder)
        self._next_seed += wishes.seed is None
        session = Session(secrets.token_hex(16), seed, decoder, memory, used=self._clock(), owner=connection.badge)
        self._sessions[session.name] = session
        self._remember(session, connection)
        return session

    def _remember(self, session: Session, connection: Connection) -> None:
        connection.opened.append(session)
        while len(connection.opened) > self._per_connection:
            oldest = connection.opened.pop(0)
            if oldest.owner is connection.badge and not oldest.busy:
                self._sessions.pop(oldest.name, None)

    def _reset(self, session: Session, wishes: Wishes) -> None:
        decoder = session.decoder if wishes.decoder is None else wishes.decoder
        episode = session.episode + 1
        seed = episode_seed(session.seed, episode) if wishes.seed is None else wishes.seed
        session.memory = self._memory(seed, decoder)
        session.decoder, session.episode, session.sequence, session.last_action = decoder, episode, -1, None
        session.fingerprint = session.answer = b""

    def _memory(self, seed: int, decoder: str | None) -> Any:
        try:
            return self._model.begin(seed, decoder)
        except ValueError as error:
            raise RequestError(ErrorKind.INVALID, str(error), f"{BLOCK}.decoder") from None

    def forget_idle(self) -> None:
        """Drop sessions that nobody has used for the idle time."""
        horizon = self._clock() - self._idle
        for name in [s.name for s in self._sessions.values() if s.used < horizon and not s.busy]:
            del self._sessions[name]
