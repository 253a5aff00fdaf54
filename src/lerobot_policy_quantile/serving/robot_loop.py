"""Control loop of a robot that executes a server's chunks at a fixed rate and holds still when it has none.

In real time (`LoopSettings.real_time`) it asks for the next chunk while it executes the present one, hands over what is
left of it, and stands still only where the answer takes longer than that.

Every tick sends exactly one command: the next action of the chunk, or `hold`. Requests run in a background thread, so
the robot holds still, and the loop keeps its rate, when the server is slow, busy or unreachable. Observations that are
missing, old or repeated are not sent.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from lerobot_policy_quantile.serving.alarm import Alarm, AlarmMonitor
from lerobot_policy_quantile.serving.background_client import BackgroundClient, TimedObservation
from lerobot_policy_quantile.serving.spread import Replanning, served_grippers

Array = NDArray[Any]


class RobotObservation(NamedTuple):
    """Camera images and joint state, under the server's field names."""

    observation: Mapping[str, Any]
    captured: float
    """`time.monotonic()` when it was captured."""
    frame: int
    """Number of the frame; increases with every new one."""


class Robot(Protocol):
    """The interface of a robot. No call may take longer than a tick."""

    def observe(self) -> RobotObservation | None:
        """The newest observation, or None if there is none."""

    def act(self, action: Float[Array, " d"]) -> None:
        """Command one action."""

    def hold(self) -> None:
        """Hold the current position."""


@dataclass
class LoopReport:
    """Counts of one run."""

    ticks: int = 0
    executed: int = 0
    held: int = 0
    chunks: int = 0
    unusable: int = 0
    """Observations that were missing, too old or repeated."""
    late_ticks: int = 0
    alarms: int = 0
    """Chunks whose alarm was on."""


@dataclass(frozen=True)
class LoopSettings:
    """Rate and replanning of the loop."""

    hz: float = 20.0
    n_action_steps: int | None = None
    """Actions of a chunk to execute; None: the server's number."""
    max_age: float = 0.3
    """Largest age of an observation that is sent, in seconds."""
    replanning: Replanning | None = None
    """Replan earlier where the predicted spread is large; None: never."""
    real_time: bool = False
    """Ask for the next chunk while the present one is executed; a policy that can takes over from its rest."""
    alarm: Alarm | None = None
    """Watches the episode here; None: the server's alarm is listened to, if it has one."""

    def __post_init__(self) -> None:
        if self.hz <= 0 or self.max_age <= 0:
            raise ValueError(f"hz and max_age must be positive; got {self.hz} and {self.max_age}")
        if self.n_action_steps is not None and self.n_action_steps < 1:
            raise ValueError(f"n_action_steps must be at least 1; got {self.n_action_steps}")
        if self.real_time and self.replanning is not None:
            raise ValueError("replanning must be None in real time, where chunks are asked for ahead of time")


AlarmReaction = Literal["go on", "replan", "hold"]
"""What to do with a chunk whose alarm is on: follow it, follow one step of it, or hold and wait for `go_on`."""
OnAlarm = Callable[[Mapping[str, Any]], AlarmReaction]


def replan_at_once(_: Mapping[str, Any]) -> AlarmReaction:
    """Look again after one step, as long as the alarm is on."""
    return "replan"


class RobotLoop:
    """Runs a robot with a background client.

    `on_alarm` hears the reading of every chunk whose alarm is on, and may call for help before it says what to do.
    """

    def __init__(
        self,
        robot: Robot,
        client: BackgroundClient,
        settings: LoopSettings | None = None,
        on_alarm: OnAlarm = replan_at_once,
    ) -> None:
        self._robot, self._client, self._settings = robot, client, settings or LoopSettings()
        if self._settings.replanning is not None and "spread" not in client.want:
            raise ValueError(f"want must hold 'spread' for adaptive replanning; got {client.want}")
        if self._settings.alarm is not None and "quantiles" not in client.want:
            raise ValueError(f"want must hold 'quantiles' for an alarm in the loop; got {client.want}")
        self._on_alarm, self._stopped = on_alarm, False
        self._monitor = None if self._settings.alarm is None else AlarmMonitor(self._settings.alarm)
        self._plan: deque[Float[Array, " d"]] = deque()
        self._last_frame: int | None = None
        self._executed = 0
        """Actions executed since the last request."""
        self._delay = 0
        """Most actions that were executed during a request: what the next one is expected to take."""
        self._began = 0
        """Actions executed before the alarm began to watch."""
        self.report = LoopReport()

    def run(self, *, ticks: int, done: Callable[[], bool] = lambda: False) -> LoopReport:
        """Run for `ticks` ticks or until `done`; the robot holds at the end, also after an exception."""
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
                else:  # late: the next ticks keep their full period
                    self.report.late_ticks += 1
                    due = time.monotonic()
        finally:
            self._robot.hold()
        return self.report

    def go_on(self) -> None:
        """Ask again after an alarm made the robot hold: whoever was called has helped. The alarm begins anew."""
        self._stopped = False
        self._monitor = None if self._settings.alarm is None else AlarmMonitor(self._settings.alarm)
        self._began = self.report.executed

    def tick(self) -> None:
        """Send one command to the robot."""
        self.report.ticks += 1
        if self._client.waiting and (answer := self._client.poll()) is not None:
            self._follow(answer)
            self._heed(answer)
        if not self._client.waiting and not self._stopped and self._due():
            self._ask()
        if self._plan:
            self._robot.act(self._plan.popleft())
            self._executed += 1
            self.report.executed += 1
        else:
            self._robot.hold()
            self.report.held += 1

    def _follow(self, answer: Mapping[str, Any]) -> None:
        actions = np.asarray(answer["actions"])
        if not np.isfinite(actions).all():
            raise ValueError("the server answered with actions that are not finite")
        self.report.chunks += 1
        if self._settings.real_time:
            self._delay = min(max(self._delay, self._executed), len(actions) - 1)
            self._plan = deque(actions[self._executed :])
            return
        steps = self._steps()
        if self._settings.replanning is not None:
            grippers = served_grippers(self._client.metadata)
            steps = min(steps, self._settings.replanning.steps(answer["spread"], grippers))
        self._plan = deque(actions[:steps])

    def _heed(self, answer: Mapping[str, Any]) -> None:
        """Do what `on_alarm` says about a chunk whose alarm is on; in real time the next look comes early anyway."""
        alarm = answer.get("alarm")
        if self._monitor is not None:
            asked = self.report.executed - self._executed - self._began
            alarm = self._monitor.observe(asked, np.asarray(answer["quantiles"])).record()
        if alarm is None or not alarm["on"]:
            return
        self.report.alarms += 1
        reaction = self._on_alarm(alarm)
        self._stopped = reaction == "hold"
        if self._stopped:
            self._plan.clear()
        elif reaction == "replan" and not self._settings.real_time:
            self._plan = deque([self._plan[0]])

    def _steps(self) -> int:
        return self._settings.n_action_steps or int(self._client.metadata["n_action_steps"])

    def _due(self) -> bool:
        """Whether to ask: at the end of the plan; in real time as early as the chunk lasts for the answer's time."""
        if not self._plan or not self._settings.real_time:
            return not self._plan
        spare = int(self._client.metadata["chunk_size"]) - self._steps()
        return len(self._plan) <= max(spare, self._delay + 1)

    def _ask(self) -> None:
        seen = self._robot.observe()
        fresh = seen is not None and time.monotonic() - seen.captured <= self._settings.max_age
        if seen is None or not fresh or seen.frame == self._last_frame:
            self.report.unusable += 1
            return
        self._last_frame = seen.frame
        self._executed = 0
        hands_over = self._settings.real_time and self._plan and self._client.metadata.get("hands_over")
        rest = np.array(self._plan) if hands_over else None
        self._client.submit(TimedObservation(seen.observation, seen.captured, rest, self._delay))
