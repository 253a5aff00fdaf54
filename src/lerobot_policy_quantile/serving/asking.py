"""Questions to the server from a thread of their own, so that a control loop never waits for a network.

The thread keeps the connection: it connects again when the server is gone, continues its session where the server still
knows it, and begins a new one where it does not.
"""

import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lerobot_policy_quantile.serving.client import PolicyClient, ServerGoneError, ServerRefusedError
from lerobot_policy_quantile.serving.protocol import BLOCK, ErrorKind, RequestError


@dataclass
class AskerCounts:
    """What happened on the way."""

    answers: int = 0
    refused: int = 0
    """Busy, late, stale: asked again with a fresh observation."""
    lost: int = 0
    """No server, or no answer in time."""
    connections: int = 0
    sessions: int = 0


@dataclass(frozen=True)
class Question:
    """An observation in the server's words, and when it was made."""

    observation: Mapping[str, Any]
    captured: float


@dataclass
class Asker:
    """At most one question under way. `ask`, then `take` until an answer or a failure is there."""

    url: str
    token: str | None = None
    ca: str | None = None
    timeout: float = 1.0
    decoder: str | None = None
    seed: int | None = None
    want: tuple[str, ...] = ()
    backoff: tuple[float, float] = (0.1, 2.0)
    """Seconds between attempts to connect: first, and at most."""
    counts: AskerCounts = field(default_factory=AskerCounts)
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._questions: queue.SimpleQueue[Question | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[dict[str, Any] | Exception | None] = queue.SimpleQueue()
        self._client: PolicyClient | None = None
        self._session: str | None = None
        self._sequence = 0
        self._pause = self.backoff[0]
        self.waiting = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="asker", daemon=True)
        self._thread.start()

    def ask(self, question: Question) -> None:
        """Hand over a question; only when none is waiting."""
        self.waiting = True
        self._questions.put(question)

    def take(self) -> dict[str, Any] | None:
        """The answer, if it has come; None if it has not, or if another observation shall be asked.

        Raises what another try cannot mend: a request the server calls invalid.
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
        """End the thread and the connection."""
        self._closed.set()
        self._questions.put(None)
        self._thread.join(self.timeout + 5)

    def _run(self) -> None:
        while (question := self._questions.get()) is not None and not self._closed.is_set():
            self._answers.put(self._attempt(question))
        if self._client is not None:
            self._client.close()

    def _attempt(self, question: Question) -> dict[str, Any] | Exception | None:
        try:
            client = self._connected()
            if self._session is None:
                self._begin(client)
            return self._infer(client, question)
        except ServerGoneError:
            self.counts.lost += 1
            self._closed.wait(self._pause)
            self._pause = min(2 * self._pause, self.backoff[1])
            return None
        except RequestError as error:
            if error.kind is ErrorKind.UNKNOWN_SESSION:
                self._session = None
                return None
            if error.retry:
                self.counts.refused += 1
                self._closed.wait(self.backoff[0])
                return None
            return error
        except (ServerRefusedError, ValueError) as error:
            return error

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
        self._pause = self.backoff[0]
        return self._client

    def _begin(self, client: PolicyClient) -> None:
        wishes = {"seed": self.seed, "decoder": self.decoder}
        given = {name: value for name, value in wishes.items() if value is not None}
        self._session = str(client.infer({}, reset=True, new_session=True, **given)[BLOCK]["session"])
        self._sequence = 0
        self.counts.sessions += 1

    def _infer(self, client: PolicyClient, question: Question) -> dict[str, Any]:
        self._sequence += 1
        now = time.monotonic()
        answer = client.infer(
            question.observation,
            session=self._session,
            sequence=self._sequence,
            sent=now,
            age=max(0.0, now - question.captured),
            deadline=self.timeout,
            want=list(self.want),
        )
        self.counts.answers += 1
        return answer
