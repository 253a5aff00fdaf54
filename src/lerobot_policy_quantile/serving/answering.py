"""From a frame to its answer: decoded, validated, held against its session, computed, guarded.

Every fault of a request becomes an error that the client reads; tracebacks go to the log only.
"""

import hashlib
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lerobot_policy_quantile.contract import Array, Model
from lerobot_policy_quantile.serving.alarm import Alarm, AlarmMonitor
from lerobot_policy_quantile.serving.batching import Batcher, Computed
from lerobot_policy_quantile.serving.guard import NothingToHoldError
from lerobot_policy_quantile.serving.metrics import Metrics
from lerobot_policy_quantile.serving.protocol import BLOCK, ErrorKind, RequestError
from lerobot_policy_quantile.serving.request import Request, RequestOptions, parse_request
from lerobot_policy_quantile.serving.session import Connection, Session, Sessions
from lerobot_policy_quantile.serving.settings import ServerSettings
from lerobot_policy_quantile.serving.spread import motion_spread, spread
from lerobot_policy_quantile.serving.wire import WireError, pack, unpack

log = logging.getLogger(__name__)


class ReadRequest(NamedTuple):
    """A valid request, and the digest of its frame if it is numbered."""

    request: Request
    fingerprint: bytes


class Answering:
    """Answers the frames of all connections."""

    def __init__(
        self,
        model: Model,
        settings: ServerSettings,
        metrics: Metrics,
        sessions: Sessions,
        batcher: Batcher,
        stopping: Callable[[], bool],
    ) -> None:
        self._model, self._settings, self._metrics = model, settings, metrics
        self._sessions, self._batcher, self._stopping = sessions, batcher, stopping

    def read(self, frame: bytes | str, state: Connection) -> ReadRequest | RequestError:
        """The request in a frame; the frame is not needed any more."""
        try:
            message = self._message(frame)
            state.ours |= isinstance(message, dict) and isinstance(message.get(BLOCK), dict)
            request = parse_request(message, self._model.spec)
        except RequestError as error:
            return error
        return ReadRequest(request, b"" if request.options.sequence is None else _fingerprint(frame))

    async def reply(
        self, read: ReadRequest | RequestError, state: Connection, arrived: float
    ) -> tuple[bytes | str, bool]:
        """The answer's frame, and whether the connection stays open."""
        try:
            if isinstance(read, RequestError):
                raise read
            answer = await self._answer(read, state, arrived)
        except RequestError as error:
            self._metrics.requests.labels("refused").inc()
            self._metrics.errors.labels(error.kind).inc()
            return error.text(), state.ours
        except Exception:  # any other failure must not end the server; details go to the log
            log.exception("a request failed in the server")
            self._metrics.requests.labels("failed").inc()
            self._metrics.errors.labels(ErrorKind.INFERENCE).inc()
            return RequestError(ErrorKind.INFERENCE, "the server failed; see its log").text(), state.ours
        self._metrics.requests.labels("answered").inc()
        return answer, True

    def _message(self, frame: bytes | str) -> Any:
        if self._stopping():
            raise RequestError(ErrorKind.STOPPING, "the server is stopping")
        if isinstance(frame, str):
            raise RequestError(ErrorKind.MALFORMED, "requests are binary frames of msgpack; got a text frame")
        try:
            return unpack(frame, self._settings.limits)
        except WireError as error:
            raise RequestError(ErrorKind.MALFORMED, str(error)) from None

    async def _answer(self, read: ReadRequest, state: Connection, arrived: float) -> bytes:
        request, fingerprint = read
        options = request.options
        if options.want and not self._model.spec.levels:
            raise RequestError(ErrorKind.INVALID, "this policy predicts no quantiles; leave want out", f"{BLOCK}.want")
        age = options.age + (0.0 if options.sent is None else state.transit.extra(options.sent, arrived))
        if age > self._settings.max_age and request.observation is not None:
            raise RequestError(
                ErrorKind.STALE, f"the observation is {age:.3f} s old; at most {self._settings.max_age:g} s", "age"
            )
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
        session.asked = True
        answer = pack(self._compose(computed, session, options))
        if options.sequence is not None:
            session.sequence, session.fingerprint, session.answer = options.sequence, fingerprint, answer
        return answer

    def _compose(self, computed: Computed, session: Session, options: RequestOptions) -> dict[str, Any]:
        prediction = computed.prediction
        try:
            guarded = self._settings.guard.check(prediction.actions, session.last_action, prediction.bounds)
        except NothingToHoldError as error:
            raise RequestError(ErrorKind.INFERENCE, str(error)) from None
        self._metrics.guarded.inc(guarded.steps_changed)
        session.last_action = np.array(guarded.actions[-1])
        answer: dict[str, Any] = {"actions": guarded.actions}
        if prediction.quantiles is not None:
            widths = spread(prediction.quantiles, self._model.spec.levels)
            doubt = motion_spread(widths, self._model.spec.grippers).mean()
            self._metrics.spread.observe(float(np.nan_to_num(doubt, posinf=1e9)))
            extras = {"quantiles": prediction.quantiles, "spread": widths, "ranks": prediction.ranks}
            answer |= {name: extras[name] for name in options.want if extras[name] is not None}
            if self._settings.alarm is not None:
                answer["alarm"] = self._watch(self._settings.alarm, session, prediction.quantiles)
        if prediction.bounds is not None:
            answer["bounds"] = prediction.bounds
        answer["server_timing"] = {
            "queue_ms": 1e3 * computed.queue_seconds,
            "infer_ms": 1e3 * computed.infer_seconds,
            "batch_size": computed.batch_size,
        }
        about = _about(session) | {"guarded_steps": guarded.steps_changed}
        if prediction.surprise is not None:
            self._metrics.surprise.observe(prediction.surprise)
            log.debug("session %s: surprise %.3g", session.name, prediction.surprise)
            about["surprise"] = prediction.surprise
        return answer | {BLOCK: about | ({} if options.sequence is None else {"sequence": options.sequence})}

    def _watch(self, alarm: Alarm, session: Session, quantiles: Array) -> dict[str, Any]:
        """The alarm's reading of a new chunk."""
        session.monitor = session.monitor or AlarmMonitor(alarm)
        reading = session.monitor.observe(session.steps, quantiles)
        session.steps += self._model.spec.n_action_steps
        return reading.record()


def _about(session: Session) -> dict[str, Any]:
    about: dict[str, Any] = {"session": session.name, "episode": session.episode}
    return about if session.decoder is None else about | {"decoder": session.decoder}


def _fingerprint(frame: bytes | str) -> bytes:
    """Digest of a request's frame: a repeated request has exactly the same bytes."""
    return hashlib.blake2b(frame.encode() if isinstance(frame, str) else frame, digest_size=16).digest()
