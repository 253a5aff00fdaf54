"""Dynamic batching: requests of several clients are computed together, in one thread beside the event loop.

The queue is bounded; requests beyond it are refused at once as busy. While one batch is computed, the next one
accumulates. An idle server waits a short time for further requests, unless every connected client is already queued.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from lerobot_policy_quantile.contract import Model, Observation, RawChunk
from lerobot_policy_quantile.serving.metrics import Metrics
from lerobot_policy_quantile.serving.protocol import ErrorKind, RequestError
from lerobot_policy_quantile.serving.wire import MEBIBYTE

log = logging.getLogger(__name__)


@dataclass(eq=False)
class WaitingRequest:
    """An observation in the queue."""

    observation: Observation
    memory: Any
    deadline: float
    """Latest useful time of the answer, on the server's monotonic clock."""
    stale_at: float
    """Time at which the observation becomes too old, on the same clock."""
    answer: "asyncio.Future[Computed]"
    queued: float

    @property
    def size(self) -> int:
        """Bytes of its pictures."""
        return picture_bytes(self.observation)


def picture_bytes(observation: Observation) -> int:
    """Bytes of an observation's pictures."""
    return sum(image.nbytes for image in observation.images.values())


@dataclass(frozen=True)
class Computed:
    """A chunk, with timings and the size of its batch."""

    prediction: RawChunk
    queue_seconds: float
    infer_seconds: float
    batch_size: int


class Batcher:
    """The queue and the inference thread."""

    def __init__(
        self,
        model: Model,
        metrics: Metrics,
        *,
        max_batch: int = 16,
        max_queue: int = 64,
        window: float = 0.003,
        max_bytes: int = 128 * MEBIBYTE,
        clients: Callable[[], int] = lambda: 2,
    ) -> None:
        self._model, self._metrics, self._clients = model, metrics, clients
        self._max_batch, self._max_queue, self._window = max_batch, max_queue, window
        self._max_bytes = max_bytes
        self._queue: deque[WaitingRequest] = deque()
        self._computing: list[WaitingRequest] = []
        self._arrived = asyncio.Event()
        self._pool = ThreadPoolExecutor(1, "inference")
        self._task = asyncio.create_task(self._run())

    async def compute(self, observation: Observation, memory: Any, *, deadline: float, stale_at: float) -> Computed:
        """The chunk for an observation; raises RequestError if the queue is full or the deadline passes."""
        if len(self._queue) >= self._max_queue:
            raise RequestError(ErrorKind.BUSY, f"{self._max_queue} requests are waiting already; try again shortly")
        self._require_room(observation)
        now = time.monotonic()
        future: asyncio.Future[Computed] = asyncio.get_running_loop().create_future()
        self._queue.append(WaitingRequest(observation, memory, deadline, stale_at, future, now))
        self._metrics.queue.set(len(self._queue))
        self._arrived.set()
        try:
            async with asyncio.timeout(max(0.0, deadline - now)):
                return await future
        except TimeoutError:
            raise RequestError(ErrorKind.DEADLINE, f"no answer within {deadline - now:.3f} s") from None

    def _require_room(self, observation: Observation) -> None:
        """Refuse an observation whose pictures, with those that wait or are computed, are too many bytes."""
        held = sum(job.size for job in (*self._queue, *self._computing))
        if held and held + picture_bytes(observation) > self._max_bytes:
            raise RequestError(
                ErrorKind.BUSY,
                f"pictures of {held / MEBIBYTE:.0f} MiB wait already, of {self._max_bytes / MEBIBYTE:.0f};"
                " try again shortly, or send them at the policy's size",
            )

    async def close(self) -> None:
        """Stop computing and refuse the waiting requests: the server is stopping."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        for job in self._queue:
            _refuse(job, RequestError(ErrorKind.STOPPING, "the server is stopping"))
        self._pool.shutdown(wait=False)

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            if len(self._queue) < min(self._max_batch, self._clients()):
                await asyncio.sleep(self._window)
            self._computing = self._next_batch()
            if self._computing:
                await self._compute(self._computing)
            self._computing = []

    def _next_batch(self) -> list[WaitingRequest]:
        now = time.monotonic()
        batch: list[WaitingRequest] = []
        while self._queue and len(batch) < self._max_batch:
            job = self._queue.popleft()
            if job.answer.done():
                continue  # its client no longer waits
            if now > job.deadline:
                _refuse(job, RequestError(ErrorKind.DEADLINE, "the deadline passed while the request waited"))
            elif now > job.stale_at:
                _refuse(job, RequestError(ErrorKind.STALE, "the observation became too old while the request waited"))
            else:
                batch.append(job)
        self._metrics.queue.set(len(self._queue))
        if not self._queue:
            self._arrived.clear()
        return batch

    async def _compute(self, batch: list[WaitingRequest]) -> None:
        began = time.monotonic()
        self._metrics.batch_size.observe(len(batch))
        try:
            predictions = await self._predict(batch)
        except Exception as error:  # any failure of a policy must not end the server
            log.exception("the policy failed on a batch of %d", len(batch))
            await self._one_by_one(batch, error)
            return
        seconds = time.monotonic() - began
        self._metrics.inference.observe(seconds)
        for job, prediction in zip(batch, predictions, strict=True):
            if not job.answer.done():
                job.answer.set_result(Computed(prediction, began - job.queued, seconds, len(batch)))

    async def _one_by_one(self, batch: list[WaitingRequest], error: Exception) -> None:
        """Compute the requests of a failed batch separately, so that one bad request does not fail the others."""
        if len(batch) > 1:
            for job in batch:
                await self._compute([job])
            return
        message = f"the policy failed with {type(error).__name__}; see the server's log"
        _refuse(batch[0], RequestError(ErrorKind.INFERENCE, message))

    async def _predict(self, batch: list[WaitingRequest]) -> list[RawChunk]:
        observations, memories = [job.observation for job in batch], [job.memory for job in batch]
        loop = asyncio.get_running_loop()
        predictions = list(await loop.run_in_executor(self._pool, self._model.predict, observations, memories))
        if len(predictions) != len(batch):
            raise ValueError(f"the policy must answer {len(batch)} rows; it gave {len(predictions)}")
        return predictions


def _refuse(job: WaitingRequest, error: RequestError) -> None:
    if not job.answer.done():
        job.answer.set_exception(error)
