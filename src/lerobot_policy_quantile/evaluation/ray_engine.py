"""The cluster engine: simulators and policies as Ray actors, anywhere; the journal stays with the driver.

A simulator is handed one episode at a time, so a slow node holds nobody up. It asks a policy replica for every chunk;
a replica answers what has come in meanwhile as one batch. A simulator or a replica that is lost costs the episodes it
had under way one attempt, as with local processes; a new one takes its place.

`RAY_ADDRESS` names a running cluster; without it Ray is started here for this run. Side files are written by the
simulators: on several machines their folder must be a shared one.
"""

import asyncio
import os
import time
import traceback
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple, Self

from lerobot_policy_quantile.contract import Chunk, Factory, Observation, Policy, UnusablePolicyError, World
from lerobot_policy_quantile.evaluation.engine import LOOK_SECONDS, EngineError, MakeCrew
from lerobot_policy_quantile.evaluation.outcome import Outcome
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.shelf import Shelf
from lerobot_policy_quantile.evaluation.worker import EpisodeRunner, WorkerJob

# Read when Ray is first imported: a busy machine may need longer than Ray's own half minute to start a node.
os.environ.setdefault("RAY_raylet_start_wait_time_s", "300")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

BATCH_SECONDS = 0.005
"""How long a replica waits for company before it answers."""

LARGEST_BATCH = 8
STORE_BYTES = 100 * 2**20
STARTS = 3
"""Tries to start Ray here."""

_PROTOCOL = ("n_action_steps", "needs_images", "context")


class _Episode(NamedTuple):
    """One that a simulator has under way: its policy and what the policy remembers of it."""

    policy: Policy
    memory: Any


class Replica:
    """A policy actor: holds the episodes' memories and answers waiting queries as one batch.

    A simulator, known by its number, has one episode at a time. Decoders share their policy's model.
    """

    def __init__(self, factory: Factory) -> None:
        self._shelf = Shelf(factory.policy)
        self._episodes: dict[int, _Episode] = {}
        self._waiting: list[tuple[_Episode, Observation, asyncio.Future[Chunk]]] = []
        self._answering: asyncio.Task[None] | None = None

    async def about(self, visitor: int, name: str) -> dict[str, Any]:
        """What a simulator must know of the policy; whether it may be asked from afar at all."""
        await self.end(visitor)
        policy = await self._shelf.take(visitor, name)
        facts = {field: getattr(policy, field) for field in _PROTOCOL}
        return {**facts, "context": dict(policy.context), "local": getattr(policy, "looks_at_world", False)}

    async def begin(self, visitor: int, name: str, seed: int, decoder: str) -> None:
        """A new episode; its memory stays here."""
        self._episodes.pop(visitor, None)
        policy = await self._shelf.take(visitor, name)
        self._episodes[visitor] = _Episode(policy, policy.begin(seed, _nowhere(), decoder))

    async def end(self, visitor: int) -> None:
        """The simulator's episode has ended."""
        self._episodes.pop(visitor, None)
        self._shelf.give_back(visitor)

    async def leave(self, visitor: int) -> None:
        """The simulator is gone."""
        self._episodes.pop(visitor, None)
        self._shelf.leave(visitor)

    async def act(self, visitor: int, observation: Observation) -> Chunk:
        """The next chunk of the simulator's episode."""
        answer: asyncio.Future[Chunk] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._episodes[visitor], observation, answer))
        if self._answering is None or self._answering.done():
            self._answering = asyncio.create_task(self._answer())
        return await answer

    async def _answer(self) -> None:
        await asyncio.sleep(BATCH_SECONDS)
        while self._waiting:
            policy = self._waiting[0][0].policy
            same = [entry for entry in self._waiting if entry[0].policy is policy][:LARGEST_BATCH]
            taken = {id(answer) for _, _, answer in same}
            self._waiting = [entry for entry in self._waiting if id(entry[2]) not in taken]
            try:
                chunks = policy.act([seen for _, seen, _ in same], [episode.memory for episode, _, _ in same])
            except Exception as error:  # each episode that asked gets the error as its own
                for _, _, answer in same:
                    answer.set_exception(error)
                continue
            for (_, _, answer), chunk in zip(same, chunks, strict=True):
                answer.set_result(chunk)
            await asyncio.sleep(0)


def _nowhere() -> World:
    """A policy that looks at the world is not asked from afar, so there is none to hand over."""
    return None  # type: ignore[return-value]


class RemotePolicy:
    """A replica's policy as the closed loop sees it."""

    def __init__(self, replica: Any, visitor: int, name: str, facts: Mapping[str, Any]) -> None:
        self._replica, self._visitor, self._name = replica, visitor, name
        self.n_action_steps: int = facts["n_action_steps"]
        self.needs_images: bool = facts["needs_images"]
        self.context: Mapping[str, str] = facts["context"]

    def begin(self, seed: int, world: World, decoder: str) -> int:
        """The number under which the replica remembers the episode; the one before it has ended."""
        _answer_of(self._replica.begin.remote(self._visitor, self._name, seed, decoder))
        return self._visitor

    def act(self, observations: Sequence[Observation], memories: Sequence[int]) -> list[Chunk]:
        """Ask for all at once."""
        chunks: list[Chunk] = _answer_of(
            [self._replica.act.remote(visitor, o) for visitor, o in zip(memories, observations, strict=True)]
        )
        return chunks

    def close(self) -> None:
        """The model is not needed here any more."""
        self._replica.end.remote(self._visitor)


def _answer_of(question: Any) -> Any:
    """A replica's answer; a policy that will never answer is told as itself."""
    import ray

    try:
        return ray.get(question)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, UnusablePolicyError):
            raise error.cause from None
        raise


class _AskingFactory:
    """Worlds are made here, policies answered by a replica; scripted ones, which look at the world, are made here."""

    def __init__(self, factory: Factory, replica: Any, visitor: int) -> None:
        self._factory, self._replica, self._visitor = factory, replica, visitor

    def world(self, scene: str) -> World:
        return self._factory.world(scene)

    def policy(self, policy: str) -> Policy:
        facts = _answer_of(self._replica.about.remote(self._visitor, policy))
        if facts["local"]:
            self._replica.end.remote(self._visitor)
            return self._factory.policy(policy)
        return RemotePolicy(self._replica, self._visitor, policy, facts)


class Simulator:
    """A simulator actor: one world, one episode at a time."""

    def __init__(self, job: WorkerJob, replica: Any, visitor: int) -> None:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        self._replica, self._visitor = replica, visitor
        self._runner = EpisodeRunner(
            WorkerJob(_AskingFactory(job.factory, replica, visitor), job.limit, job.side_files)
        )

    def run(self, key: EpisodeKey) -> Outcome:
        """The outcome of one attempt; no model waits for an idle simulator."""
        import ray

        outcome = self._runner.run(key)
        with suppress(ray.exceptions.RayError):  # a replica that is gone keeps nothing
            ray.get(self._replica.end.remote(self._visitor))
        return outcome

    def process(self) -> int:
        """Its process, for those who watch or end it."""
        return os.getpid()


class RayCrew:
    """Simulators and replicas of one run; lost ones are replaced."""

    def __init__(self, job: WorkerJob, size: int, timeout: float, replicas: int) -> None:
        self._job, self._size, self._timeout, self._replica_count = job, size, timeout, replicas
        self._idle: list[tuple[Any, int]] = []
        self._running: dict[Any, tuple[EpisodeKey, Any, int, float]] = {}
        self._replicas: list[Any] = []
        self._visitors: dict[int, int] = {}
        self._numbers = count()
        self._started_here = False

    def __enter__(self) -> Self:
        if self._size == 0:  # nothing to run
            return self
        try:
            import ray
        except ImportError as error:
            raise EngineError("--engine ray needs Ray: pip install 'lerobot_policy_quantile[cluster]'") from error
        if not ray.is_initialized():
            self._started_here = True
            _start(ray, self._size + self._replica_count)
        self._ray = ray
        self._replicas = [self._new_replica() for _ in range(self._replica_count)]
        return self

    def __exit__(self, *_: object) -> None:
        if self._size == 0:
            return
        for actor in (*(s for _, s, _, _ in self._running.values()), *(s for s, _ in self._idle), *self._replicas):
            self._ray.kill(actor)
        if self._started_here:
            self._ray.shutdown()

    def _new_replica(self) -> Any:
        gpus = float(os.environ.get("QHEAD_GPUS_PER_REPLICA", "0"))
        return (
            self._ray.remote(Replica).options(num_cpus=1, num_gpus=gpus, max_concurrency=256).remote(self._job.factory)
        )

    def _new_simulator(self, seat: int) -> Any:
        replica = self._replicas[seat % self._replica_count]
        self._visitors[seat] = next(self._numbers)
        return self._ray.remote(Simulator).options(num_cpus=1).remote(self._job, replica, self._visitors[seat])

    def busy(self) -> int:
        """How many episodes are running."""
        return len(self._running)

    def hand_out(self, pending: deque[EpisodeKey]) -> None:
        """Give every idle simulator an episode; start those that are missing."""
        taken = {seat for _, seat in self._idle} | {seat for _, _, seat, _ in self._running.values()}
        for seat in sorted(set(range(self._size)) - taken)[: max(0, len(pending) - len(self._idle))]:
            self._idle.append((self._new_simulator(seat), seat))
        while self._idle and pending:
            simulator, seat = self._idle.pop(0)
            key = pending.popleft()
            self._running[simulator.run.remote(key)] = key, simulator, seat, time.monotonic() + self._timeout

    def collect(self) -> Iterator[Outcome]:
        """Results, and errors for simulators that died, hang or lost their replica."""
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=LOOK_SECONDS)
        for answer in ready:
            key, simulator, seat, _ = self._running.pop(answer)
            try:
                outcome: Outcome = self._ray.get(answer)
            except self._ray.exceptions.RayError:
                self._end(simulator, seat)
                yield Outcome(key, "error", traceback=f"the simulator was lost: {traceback.format_exc(limit=1)}")
                continue
            if outcome.status == "error" and not self._alive(seat):
                self._end(simulator, seat)  # it holds on to a replica that is gone
            else:
                self._idle.append((simulator, seat))
            yield outcome
        late = [a for a, (_, _, _, deadline) in self._running.items() if time.monotonic() > deadline]
        for answer in late:
            key, simulator, seat, _ = self._running.pop(answer)
            self._end(simulator, seat)
            yield Outcome(key, "error", traceback=f"no answer within {self._timeout:g} s: the simulator was killed")

    def _end(self, simulator: Any, seat: int) -> None:
        """A simulator is not used again; its replica need not keep a model for it."""
        self._ray.kill(simulator)
        self._replicas[seat % self._replica_count].leave.remote(self._visitors[seat])

    def _alive(self, seat: int) -> bool:
        """Whether a seat's replica answers; one that does not is replaced."""
        number = seat % self._replica_count
        try:
            self._ray.get(self._replicas[number].end.remote(-1), timeout=self._timeout)
        except self._ray.exceptions.RayError:
            self._ray.kill(self._replicas[number])
            self._replicas[number] = self._new_replica()
            return False
        return True


def _start(ray: Any, cpus: int) -> None:
    """Join the cluster of `RAY_ADDRESS`, or start a small one here. A busy machine may need more than one try."""
    here = {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": STORE_BYTES}
    for left in reversed(range(STARTS)):
        try:
            ray.init(log_to_driver=False, **({} if os.environ.get("RAY_ADDRESS") else here))
            return
        except Exception as error:  # Ray has no error of its own for this
            ray.shutdown()
            if left == 0:
                raise EngineError(f"Ray cannot be started: {error} Its logs are in /tmp/ray/session_latest") from error


def ray_crew(replicas: int) -> MakeCrew:
    """What `run_plan` takes as `make_crew`."""

    def make(job: WorkerJob, size: int, timeout: float) -> RayCrew:
        return RayCrew(job, size, timeout, replicas)

    return make
