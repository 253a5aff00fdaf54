"""The closed loop: observe, ask for a chunk, execute its first actions, ask again (App. B).

Several episodes may run in step, their queries answered as one batch. Each keeps its own memory and its own outcome:
what one of them raises is its error alone.
"""

import math
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, cast

import numpy as np

from lerobot_policy_quantile.contract import (
    Array,
    Chunk,
    DelayedPolicy,
    LeftOver,
    NotingWorld,
    Observation,
    Policy,
    UnusablePolicyError,
    World,
)
from lerobot_policy_quantile.evaluation.outcome import Outcome, Status
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.real_time import DelayedChunks
from lerobot_policy_quantile.evaluation.side_files import Trace
from lerobot_policy_quantile.util.digests import plain_digest


@dataclass(frozen=True)
class Rollout:
    """A finished episode: the row for the journal and the steps for the side files."""

    outcome: Outcome
    trace: Trace


def run_episode(world: World, policy: Policy, key: EpisodeKey, limit: int | None = None) -> Rollout:
    """Run one episode to its success, its limit (the world's own unless given) or its error."""
    return run_episodes([world], policy, [key], limit)[0]


def run_episodes(
    worlds: Sequence[World], policy: Policy, keys: Sequence[EpisodeKey], limit: int | None = None
) -> list[Rollout]:
    """Run one episode per world, in step; the policy answers all open queries at once."""
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least one step; got {limit}")
    runs = [_Run(world, policy, key, limit) for world, key in zip(worlds, keys, strict=True)]
    for run in runs:
        run.advance(partial(next, run.loop))
    while asking := [run for run in runs if run.question is not None]:
        try:
            chunks = policy.act([run.question for run in asking if run.question], [run.memory for run in asking])
        except Exception:  # a policy that raises has judged nobody: an error for each that asked
            for run in asking:
                run.end("error", traceback.format_exc())
            continue
        for run, chunk in zip(asking, chunks, strict=True):
            run.advance(partial(run.loop.send, chunk))
    return [run.result() for run in runs]


class _Run:
    """One episode under way."""

    def __init__(self, world: World, policy: Policy, key: EpisodeKey, limit: int | None) -> None:
        self.world, self.policy, self.key = world, policy, key
        self.limit = world.limit if limit is None else limit
        self.question: Observation | None = None
        self.memory: Any = None
        self.trace = Trace()
        self.loop = self._loop()
        self._outcome: Outcome | None = None
        self._began = time.perf_counter()

    def _loop(self) -> Generator[Observation, Chunk, bool]:
        """Yields what the policy shall see, takes its chunk, ends with the world's flag.

        Frames are asked for only on the last step before a query.
        """
        world, trace = self.world, self.trace
        world.reset(self.key.task, self.key.index, self.key.seed)
        self.memory = self.policy.begin(self.key.noise_seed, world, self.key.decoder)
        trace.states.append(np.array(world.state()))
        delayed = isinstance(self.policy, DelayedPolicy)
        solved = world.success() or (yield from self._delayed() if delayed else self._at_once())
        if isinstance(world, NotingWorld):
            trace.notes = dict(world.notes())
        trace.frame_rate = self._frame_rate()
        return solved

    def _at_once(self) -> Generator[Observation, Chunk, bool]:
        """The world waits for every answer."""
        solved = False
        while not solved and (left := self.limit - len(self.trace.actions)) > 0:
            chunk = yield from self._ask()
            if chunk.stop:
                break
            actions = chunk.actions[: min(self.policy.n_action_steps, left)]
            for remaining, action in zip(range(len(actions) - 1, -1, -1), actions, strict=True):
                if solved := self._step(action, observe=remaining == 0 and len(actions) < left):
                    break
        return solved

    def _delayed(self) -> Generator[Observation, Chunk, bool]:
        """The world waits for the first answer only."""
        policy, trace = cast(DelayedPolicy, self.policy), self.trace
        chunks = DelayedChunks(policy.real_time, self.policy.n_action_steps, policy.grippers)
        arriving, asked, delay = (yield from self._ask()), 0, 0
        ask_next = chunks.steps_between(arriving, delay)
        solved, waiting = False, True
        while not solved and (step := len(trace.actions)) < self.limit:
            if waiting and step == asked + delay:
                chunks.take(arriving, asked, step)
                waiting = False
            if step == ask_next:
                arriving, asked, delay = (yield from self._ask(chunks.left_over(step))), step, chunks.rule.delay
                ask_next, waiting = step + chunks.steps_between(arriving, delay), delay > 0
                if not waiting:
                    chunks.take(arriving, asked, step)
            action = chunks.stand() if waiting and chunks.handing == "pause" else chunks.action(step)
            solved = self._step(action, observe=step + 1 == ask_next < self.limit)
        trace.seams = chunks.arrays(trace.surprises)
        return solved

    def _ask(self, left_over: LeftOver | None = None) -> Generator[Observation, Chunk, Chunk]:
        """The policy's answer to the present moment."""
        self.trace.query_steps.append(len(self.trace.actions))
        chunk = yield replace(self._observe(), left_over=left_over)
        if chunk.quantiles is not None:
            self.trace.quantiles.append(np.asarray(chunk.quantiles))
        if chunk.alarm is not None:
            self.trace.alarms.append(chunk.alarm)
        self.trace.surprises.append(math.nan if chunk.surprise is None else chunk.surprise)
        return chunk

    def _step(self, action: Array, *, observe: bool) -> bool:
        """One step of the world, written down; whether the task is solved."""
        self.world.step(action, observe=self.policy.needs_images and observe)
        self.trace.actions.append(np.array(action))
        self.trace.states.append(np.array(self.world.state()))
        self.trace.contacts.append(int(self.world.contacts()))
        return self.world.success()

    def _frame_rate(self) -> Fraction:
        """One query per chunk; the mean rate where chunks were followed for different numbers of steps."""
        followed = np.diff(self.trace.query_steps)
        if (followed == self.policy.n_action_steps).all():
            return Fraction(self.world.control_hz, self.policy.n_action_steps)
        return Fraction(self.world.control_hz * len(followed), int(followed.sum()))

    def _observe(self) -> Observation:
        images = dict(self.world.frames()) if self.policy.needs_images else {}
        if images:
            self.trace.frames.append(np.concatenate(list(images.values()), axis=1))
        return Observation(images, np.array(self.world.state()), self.world.instruction)

    def advance(self, go: Callable[[], Observation]) -> None:
        """Run the loop to its next question or its end."""
        self.question = None
        try:
            self.question = go()
        except StopIteration as stop:
            self.end("success" if stop.value else "failure")
        except UnusablePolicyError as error:
            self.end("error", traceback.format_exc(), hopeless=str(error))
        except Exception:  # whatever a simulator raises is an error, never a failed episode
            self.end("error", traceback.format_exc())

    def end(self, status: Status, error: str | None = None, hopeless: str | None = None) -> None:
        """Write down how it ended."""
        self.question = None
        trace = self.trace
        self._outcome = Outcome(
            key=self.key,
            status=status,
            steps=len(trace.actions),
            control_hz=self.world.control_hz,
            wall_seconds=time.perf_counter() - self._began,
            first_action=tuple(map(float, trace.actions[0])) if trace.actions else None,
            contacts=sum(trace.contacts),
            final_state=tuple(map(float, trace.states[-1])) if trace.states else None,
            scene_context=scene_context(self.world, self.limit),
            policy_context=dict(self.policy.context),
            hashes={}
            if error
            else {"actions": _hash(*trace.actions), "simulator": _hash(self.world.simulator_state())},
            traceback=error,
            hopeless=hopeless,
        )

    def result(self) -> Rollout:
        """The finished episode."""
        if self._outcome is None:
            raise RuntimeError(f"episode {self.key.text} has not ended")
        return Rollout(self._outcome, self.trace)


def scene_context(world: World, limit: int) -> dict[str, str]:
    """Versions, assets and settings that a row of this world depends on."""
    return {**world.versions, "camera_size": str(world.camera_size), "limit": str(limit)}


def _hash(*arrays: Array) -> str:
    return plain_digest(*(np.ascontiguousarray(array, dtype=np.float64).tobytes() for array in arrays))
