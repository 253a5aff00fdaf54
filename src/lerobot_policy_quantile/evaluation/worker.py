"""A worker process: one simulator, one episode at a time, answers by pipe. It never touches the journal."""

import faulthandler
import os
import signal
import sys
import traceback
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

from lerobot_policy_quantile.contract import Factory, Policy, UnusablePolicyError, World
from lerobot_policy_quantile.evaluation.outcome import Outcome
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.rollout import run_episode
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.util.processes import end_with_parent

READY = "ready"


@dataclass(frozen=True)
class WorkerJob:
    """What every worker of a run is told."""

    factory: Factory
    limit: int | None = None
    side_files: SideFiles | None = None
    log: Path | None = None
    """Where workers' own output goes; simulators talk."""
    models: int = 1
    """Policies that a worker keeps in memory."""


def serve(connection: Connection, job: WorkerJob) -> None:
    """Run the episodes whose keys come through the pipe, until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    end_with_parent()
    if job.log is not None:
        _redirect_output(job.log)
    faulthandler.enable()
    worker = EpisodeRunner(job)
    try:
        connection.send(READY)
        while True:
            connection.send(worker.run(connection.recv()))
    except (EOFError, BrokenPipeError, ConnectionResetError):  # the parent is gone or has no more work
        worker.close()


class EpisodeRunner:
    """Keeps the last world and the last policies: `job.models` at most, whatever the plan goes through."""

    def __init__(self, job: WorkerJob) -> None:
        self._job = job
        self._scene: str | None = None
        self._world: World | None = None
        self._policies: dict[str, Policy] = {}

    def run(self, key: EpisodeKey) -> Outcome:
        """One attempt at an episode; whatever is raised becomes its error."""
        try:
            world, policy = self._world_of(key.scene), self._policy_of(key)
        except UnusablePolicyError as error:
            return Outcome(key, "error", traceback=traceback.format_exc(), hopeless=str(error))
        except Exception:  # a world or policy that cannot be made: nobody was judged
            self.close()
            return Outcome(key, "error", traceback=traceback.format_exc())
        rollout = run_episode(world, policy, key, self._job.limit)
        if rollout.outcome.status == "error":
            self.close()  # a simulator that raised is not used again
            return rollout.outcome
        if self._job.side_files is None:
            return rollout.outcome
        try:
            written = self._job.side_files.write(key, rollout.trace)
        except OSError as error:
            return replace(rollout.outcome, side_error=str(error))
        return replace(rollout.outcome, side_files=written)

    def _policy_of(self, key: EpisodeKey) -> Policy:
        """Decoders share their policy's model; a further policy takes the place of the one used longest ago."""
        policy = self._policies.pop(key.policy, None)
        if policy is None:
            while len(self._policies) >= self._job.models:
                self._policies.pop(next(iter(self._policies))).close()
            policy = self._job.factory.policy(key.policy)
        self._policies[key.policy] = policy
        return policy

    def _world_of(self, scene: str) -> World:
        if self._world is None or self._scene != scene:
            self.close()
            self._world, self._scene = self._job.factory.world(scene), scene
        return self._world

    def close(self) -> None:
        """Free the world."""
        world, self._world = self._world, None
        if world is not None:
            world.close()


def _redirect_output(log: Path) -> None:
    """Standard output and error to a file, for libraries that print from C too."""
    sys.stdout.flush()
    sys.stderr.flush()
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)
