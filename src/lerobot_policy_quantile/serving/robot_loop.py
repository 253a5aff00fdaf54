"""A robot that executes chunks from a server, at its own rate, and holds still whenever it has none.

Every tick sends exactly one command: the next action of the chunk, or `hold`. Questions run in a thread of their own,
so a server that is slow, busy, killed or gone makes the robot stand still, never wait. An observation that is missing,
old or the same as the last one is not asked about.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from lerobot_policy_quantile.serving.asking import Asker, Question
from lerobot_policy_quantile.serving.spread import Replanning, served_grippers

Array = NDArray[Any]


class Seen(NamedTuple):
    """What the robot's cameras and joints say, in the server's words."""

    observation: Mapping[str, Any]
    captured: float
    """time.monotonic() of the moment it shows."""
    frame: int
    """Counts up with every new picture; the same number is the same picture."""


class Robot(Protocol):
    """What the loop asks of an arm. No call may take longer than a tick."""

    def observe(self) -> Seen | None:
        """The newest observation, or None if there is none."""

    def act(self, action: Float[Array, " d"]) -> None:
        """Command one action."""

    def hold(self) -> None:
        """Stay where it is."""


@dataclass
class LoopReport:
    """What a run of the loop did."""

    ticks: int = 0
    executed: int = 0
    held: int = 0
    chunks: int = 0
    unusable: int = 0
    """Observations that were missing, old or repeated."""
    late_ticks: int = 0


@dataclass(frozen=True)
class LoopSettings:
    """How the loop runs."""

    hz: float = 20.0
    n_action_steps: int | None = None
    """Actions of a chunk to execute; the server's own number if None."""
    max_age: float = 0.3
    """Oldest observation to ask about, in seconds."""
    replanning: Replanning | None = None
    """Ask again sooner where the policy is in doubt."""

    def __post_init__(self) -> None:
        if self.hz <= 0 or self.max_age <= 0:
            raise ValueError(f"hz and max_age must be positive; got {self.hz} and {self.max_age}")
        if self.n_action_steps is not None and self.n_action_steps < 1:
            raise ValueError(f"n_action_steps must be at least 1; got {self.n_action_steps}")


class RobotLoop:
    """Robot and asker, tick by tick."""

    def __init__(self, robot: Robot, asker: Asker, settings: LoopSettings | None = None) -> None:
        self._robot, self._asker, self._settings = robot, asker, settings or LoopSettings()
        if self._settings.replanning is not None and "spread" not in asker.want:
            raise ValueError(f"want must hold 'spread' for adaptive replanning; got {asker.want}")
        self._plan: deque[Float[Array, " d"]] = deque()
        self._last_frame: int | None = None
        self.report = LoopReport()

    def run(self, *, ticks: int, done: Callable[[], bool] = lambda: False) -> LoopReport:
        """So many ticks, or until `done`; the robot holds at the end and when anything is raised."""
        period = 1 / self._settings.hz
        due = time.monotonic()
        try:
            for _ in range(ticks):
                if done():
                    break
                self.tick()
                due += period
                wait = due - time.monotonic()
                if wait > 0:
                    time.sleep(wait)
                else:  # a late tick is not made up for by a hurried one
                    self.report.late_ticks += 1
                    due = time.monotonic()
        finally:
            self._robot.hold()
        return self.report

    def tick(self) -> None:
        """One command to the robot."""
        self.report.ticks += 1
        if self._asker.waiting and (answer := self._asker.take()) is not None:
            self._follow(answer)
        if not self._plan and not self._asker.waiting:
            self._ask()
        if self._plan:
            self._robot.act(self._plan.popleft())
            self.report.executed += 1
        else:
            self._robot.hold()
            self.report.held += 1

    def _follow(self, answer: Mapping[str, Any]) -> None:
        actions = np.asarray(answer["actions"])
        if not np.isfinite(actions).all():
            raise ValueError("the server answered with actions that are not finite")
        steps = self._settings.n_action_steps or int(self._asker.metadata["n_action_steps"])
        if self._settings.replanning is not None:
            grippers = served_grippers(self._asker.metadata)
            steps = min(steps, self._settings.replanning.steps(answer["spread"], grippers))
        self._plan = deque(actions[:steps])
        self.report.chunks += 1

    def _ask(self) -> None:
        seen = self._robot.observe()
        fresh = seen is not None and time.monotonic() - seen.captured <= self._settings.max_age
        if seen is None or not fresh or seen.frame == self._last_frame:
            self.report.unusable += 1
            return
        self._last_frame = seen.frame
        self._asker.ask(Question(seen.observation, seen.captured))
