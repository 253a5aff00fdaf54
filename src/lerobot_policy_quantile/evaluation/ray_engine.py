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
from itertools import count
from typing import Any, Self

from lerobot_policy_quantile.evaluation.contract import Chunk, Observation, Policy, UnusablePolicyError, Workshop, World
from lerobot_policy_quantile.evaluation.engine import LOOK_SECONDS, EngineError, MakeCrew
from lerobot_policy_quantile.evaluation.outcome import Outcome
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.worker import EpisodeRunner, Job

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


class Replica:
    """A policy actor: holds the episodes' memories and answers waiting queries as one batch."""

    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop
        self._policies: dict[tuple[str, str], Policy] = {}
        self._memories: dict[int, tuple[tuple[str, str], Any]] = {}
        self._waiting: list[tuple[int, Observation, asyncio.Future[Chunk]]] = []
        self._numbers = count()
        self._answering: asyncio.Task[None] | None = None

    async def about(self, name: tuple[str, str]) -> dict[str, Any]:
        """What a simulator must know of the policy; whether it may be asked from afar at all."""
        policy = self._policy(name)
        facts = {field: getattr(policy, field) for field in _PROTOCOL}
        return {**facts, "context": dict(policy.context), "local": getattr(policy, "looks_at_world", False)}

    async def begin(self, name: tuple[str, str], seed: int) -> int:
        """A new episode's number; its memory stays here."""
        number = next(self._numbers)
        self._memories[number] = name, self._policy(name).begin(seed, _nowhere())
        return number

    async def forget(self, number: int) -> None:
        """An episode has ended."""
        self._memories.pop(number, None)

    async def act(self, number: int, observation: Observation) -> Chunk:
        """The next chunk of an episode."""
        answer: asyncio.Future[Chunk] = asyncio.get_running_loop().create_future()
        self._waiting.append((number, observation, answer))
        if self._answering is None or self._answering.done():
            self._answering = asyncio.create_task(self._answer())
        return await answer

    def _policy(self, name: tuple[str, str]) -> Policy:
        if name not in self._policies:
            self._policies[name] = self._workshop.policy(*name)
        return self._policies[name]

    async def _answer(self) -> None:
        await asyncio.sleep(BATCH_SECONDS)
        while self._waiting:
            policy = self._memories[self._waiting[0][0]][0]
            same = [entry for entry in self._waiting if self._memories[entry[0]][0] == policy][:LARGEST_BATCH]
            self._waiting = [entry for entry in self._waiting if entry not in same]
            memories = [self._memories[number][1] for number, _, _ in same]
            try:
                chunks = self._policy(policy).act([observation for _, observation, _ in same], memories)
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

    def __init__(self, replica: Any, name: tuple[str, str], facts: Mapping[str, Any]) -> None:
        self._replica, self._name = replica, name
        self.n_action_steps: int = facts["n_action_steps"]
        self.needs_images: bool = facts["needs_images"]
        self.context: Mapping[str, str] = facts["context"]
        self._open: list[int] = []

    def begin(self, seed: int, world: World) -> int:
        """The number under which the replica remembers the episode; the one before it has ended."""
        import ray

        for number in self._open:
            self._replica.forget.remote(number)
        self._open = [ray.get(self._replica.begin.remote(self._name, seed))]
        return self._open[0]

    def act(self, observations: Sequence[Observation], memories: Sequence[int]) -> list[Chunk]:
        """Ask for all at once."""
        import ray

        questions = [self._replica.act.remote(n, o) for n, o in zip(memories, observations, strict=True)]
        chunks: list[Chunk] = ray.get(questions)
        return chunks


class _AskingWorkshop:
    """Worlds are made here, policies answered by a replica; scripted ones, which look at the world, are made here."""

    def __init__(self, workshop: Workshop, replica: Any) -> None:
        self._workshop, self._replica = workshop, replica

    def world(self, scene: str) -> World:
        return self._workshop.world(scene)

    def policy(self, policy: str, decoder: str) -> Policy:
        import ray

        try:
            facts = ray.get(self._replica.about.remote((policy, decoder)))
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, UnusablePolicyError):
                raise error.cause from None
            raise
        if facts["local"]:
            return self._workshop.policy(policy, decoder)
        return RemotePolicy(self._replica, (policy, decoder), facts)


class Simulator:
    """A simulator actor: one world, one episode at a time."""

    def __init__(self, job: Job, replica: Any) -> None:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        self._runner = EpisodeRunner(Job(_AskingWorkshop(job.workshop, replica), job.limit, job.side_files))

    def run(self, key: EpisodeKey) -> Outcome:
        """The outcome of one attempt."""
        return self._runner.run(key)

    def process(self) -> int:
        """Its process, for those who watch or end it."""
        return os.getpid()


class RayCrew:
    """Simulators and replicas of one run; lost ones are replaced."""

    def __init__(self, job: Job, size: int, timeout: float, replicas: int) -> None:
        self._job, self._size, self._timeout, self._replica_count = job, size, timeout, replicas
        self._idle: list[tuple[Any, int]] = []
        self._running: dict[Any, tuple[EpisodeKey, Any, int, float]] = {}
        self._replicas: list[Any] = []
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
            self._ray.remote(Replica).options(num_cpus=1, num_gpus=gpus, max_concurrency=256).remote(self._job.workshop)
        )

    def _new_simulator(self, seat: int) -> Any:
        replica = self._replicas[seat % self._replica_count]
        return self._ray.remote(Simulator).options(num_cpus=1).remote(self._job, replica)

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
                self._ray.kill(simulator)
                yield Outcome(key, "error", traceback=f"the simulator was lost: {traceback.format_exc(limit=1)}")
                continue
            if outcome.status == "error" and not self._alive(seat):
                self._ray.kill(simulator)  # it holds on to a replica that is gone
            else:
                self._idle.append((simulator, seat))
            yield outcome
        late = [a for a, (_, _, _, deadline) in self._running.items() if time.monotonic() > deadline]
        for answer in late:
            key, simulator, _, _ = self._running.pop(answer)
            self._ray.kill(simulator)
            yield Outcome(key, "error", traceback=f"no answer within {self._timeout:g} s: the simulator was killed")

    def _alive(self, seat: int) -> bool:
        """Whether a seat's replica answers; one that does not is replaced."""
        number = seat % self._replica_count
        try:
            self._ray.get(self._replicas[number].forget.remote(-1), timeout=self._timeout)
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

    def make(job: Job, size: int, timeout: float) -> RayCrew:
        return RayCrew(job, size, timeout, replicas)

    return make
