"""A client in a background thread, so that a control loop never waits for the network.

The thread owns the connection. After a lost connection it reconnects and continues its session, or begins a new one if
the server has dropped the session.
"""

import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float

from lerobot_policy_quantile.contract import Array
from lerobot_policy_quantile.serving.client import PolicyClient, ServerGoneError, ServerRefusedError, WrongTokenError
from lerobot_policy_quantile.serving.protocol import BLOCK, ErrorKind, RequestError

STALE_IN_A_ROW = 3
"""Refusals as stale after which the connection is opened anew: a new one measures transit times anew, too."""
TOKEN_ATTEMPTS = 3
"""Refusals of the token after which `poll` raises; a server that restarts with the right one is found before."""


@dataclass
class RequestCounts:
    """How requests ended."""

    answers: int = 0
    refused: int = 0
    """Refused as busy, late or stale; the next observation is sent instead."""
    lost: int = 0
    """Server not reachable, or no answer in time."""
    connections: int = 0
    sessions: int = 0


@dataclass(frozen=True)
class TimedObservation:
    """An observation under the server's field names, and `time.monotonic()` when it was captured."""

    observation: Mapping[str, Any]
    captured: float
    left_over: Float[Array, "t d"] | None = None
    """What is left of the chunk being executed, if the answer shall take over from it."""
    delay: int = 0
    """Steps of it that will have been executed when the answer arrives."""


@dataclass
class BackgroundClient:
    """Sends one observation at a time: `submit` it, then `poll` until the answer has arrived."""

    url: str
    token: str | None = None
    ca: str | None = None
    timeout: float = 1.0
    decoder: str | None = None
    seed: int | None = None
    want: tuple[str, ...] = ()
    backoff: tuple[float, float] = (0.1, 2.0)
    """Seconds between attempts to connect: the first pause and the longest."""
    counts: RequestCounts = field(default_factory=RequestCounts)
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._observations: queue.SimpleQueue[TimedObservation | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[dict[str, Any] | Exception | None] = queue.SimpleQueue()
        self._client: PolicyClient | None = None
        self._session: str | None = None
        self._sequence = 0
        self._pause = self.backoff[0]
        self._stale = self._denied = 0
        self.waiting = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="policy-client", daemon=True)
        self._thread.start()

    def submit(self, timed: TimedObservation) -> None:
        """Send an observation; only when none is waiting for its answer."""
        self.waiting = True
        self._observations.put(timed)

    def poll(self) -> dict[str, Any] | None:
        """The answer, or None: it has not arrived yet (`waiting`), or a new observation should be submitted.

        Raises errors that a retry cannot fix, such as a request that the server refused as invalid.
        """
        try:
            answer = self._answers.get_nowait()
        except queue.Empty:
            return None
        self.waiting = False
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        """Stop the thread and close the connection."""
        self._closed.set()
        self._observations.put(None)
        self._thread.join(self.timeout + 5)

    def _run(self) -> None:
        while (timed := self._observations.get()) is not None and not self._closed.is_set():
            self._answers.put(self._attempt(timed))
        if self._client is not None:
            self._client.close()

    def _attempt(self, timed: TimedObservation) -> dict[str, Any] | Exception | None:
        try:
            client = self._connected()
            if self._session is None:
                self._begin(client)
            answer = self._infer(client, timed)
        except ServerGoneError as error:
            return self._gone(error)
        except RequestError as error:
            return self._refused(error)
        except (ServerRefusedError, ValueError) as error:
            return error
        self._stale = 0
        return answer

    def _gone(self, error: ServerGoneError) -> ServerGoneError | None:
        """Wait before the next attempt; a token that is refused again and again is the caller's to mend."""
        self.counts.lost += 1
        self._denied = self._denied + 1 if isinstance(error, WrongTokenError) else 0
        if self._denied >= TOKEN_ATTEMPTS:
            return error
        self._closed.wait(self._pause)
        self._pause = min(2 * self._pause, self.backoff[1])
        return None

    def _refused(self, error: RequestError) -> RequestError | None:
        if error.kind is ErrorKind.UNKNOWN_SESSION:
            self._session = None
            return None
        if not error.retry:
            return error
        self.counts.refused += 1
        self._stale = self._stale + 1 if error.kind is ErrorKind.STALE else 0
        if self._stale >= STALE_IN_A_ROW and self._client is not None:
            self._client.close()
            self._stale = 0
        self._closed.wait(self.backoff[0])
        return None

    def _connected(self) -> PolicyClient:
        if self._client is None:
            self._client = PolicyClient(
                self.url, token=self.token, ca=self.ca, timeout=self.timeout, connect_timeout=self.timeout
            )
        elif self._client.connected:
            return self._client
        else:
            self._client.connect()
        if not self._client.ours:
            raise ValueError(f"{self.url} is no quantile server: sessions and ages need one")
        self.metadata = self._client.metadata
        self.counts.connections += 1
        self._pause, self._denied = self.backoff[0], 0
        return self._client

    def _begin(self, client: PolicyClient) -> None:
        options = {"seed": self.seed, "decoder": self.decoder}
        given = {name: value for name, value in options.items() if value is not None}
        self._session = str(client.infer({}, reset=True, new_session=True, **given)[BLOCK]["session"])
        self._sequence = 0
        self.counts.sessions += 1

    def _infer(self, client: PolicyClient, timed: TimedObservation) -> dict[str, Any]:
        self._sequence += 1
        now = time.monotonic()
        rest = {} if timed.left_over is None else {"left_over": timed.left_over, "delay": timed.delay}
        answer = client.infer(
            timed.observation,
            **rest,
            session=self._session,
            sequence=self._sequence,
            sent=now,
            age=max(0.0, now - timed.captured),
            deadline=self.timeout,
            want=list(self.want),
        )
        self.counts.answers += 1
        return answer
