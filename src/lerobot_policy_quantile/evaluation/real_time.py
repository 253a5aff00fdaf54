"""The closed loop with an inference delay: the world goes on with the old chunk while the new one is computed.

Steps of delay are simulated exactly: the policy sees the observation of the step at which it is asked, and its chunk is
there `delay` steps later. Only the first chunk of an episode is waited for, before the robot starts.

Axes: h chunk step, d action dim.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from lerobot_policy_quantile.contract import Array, Chunk, Handing, LeftOver, RealTime

ENSEMBLE_DECAY = 0.01
"""ACT's m: of all chunks that hold an action for a step, the i-th oldest counts exp(-m i)."""


@dataclass
class DelayedChunks:
    """The chunks of one episode under one rule, and what is executed of them.

    pause     the robot stands still until the new chunk is there, then executes it from its first step
    swap      the old chunk is executed during the delay, then the new one from the step it has come to
    ensemble  as swap, but every action is ACT's weighted mean of all chunks that hold the step
    rank, rtc as swap, but the policy is given what is left of the old chunk and joins the new one to it
    """

    rule: RealTime
    period: int
    """Steps of a chunk after which the next one is asked for, unless delay or chunk ask for others."""
    grippers: tuple[int, ...] = (-1,)
    seam_steps: list[int] = field(default_factory=list)
    """Steps at which a new chunk's first action was executed while the old one had an action for it."""
    seam_jumps: list[Float[Array, " d"]] = field(default_factory=list)
    """By how much these actions differed, per coordinate."""
    standing: int = 0
    """Steps without an action, at which the robot stood still."""

    def __post_init__(self) -> None:
        self._chunks: list[tuple[int, Float[Array, "h d"]]] = []
        self._seam: Float[Array, " d"] | None = None
        self._last: Float[Array, " d"] | None = None

    @property
    def handing(self) -> Handing:
        """How chunks take over from each other."""
        return self.rule.handover

    def steps_between(self, chunk: Chunk, delay: int) -> int:
        """Steps from one request to the next: early enough for the chunk to last until the next one is there.

        One request is under way at a time: where the delay is more than half a chunk, the chunk does not last.
        """
        if self.handing == "pause":
            return delay + min(self.period, len(chunk.actions))
        return max(self.rule.delay, min(self.period, len(chunk.actions) - self.rule.delay), 1)

    def left_over(self, step: int) -> LeftOver | None:
        """What the policy is told of the old chunk; None where the rule does not hand it over."""
        if self.handing not in ("rank", "rtc"):
            return None
        begin, actions = self._chunks[-1]
        rest = actions[step - begin :]
        return LeftOver(rest, self.rule.delay) if len(rest) else None

    def take(self, chunk: Chunk, asked: int, now: int) -> None:
        """A chunk has arrived at step `now` that was asked for at `asked`."""
        begin = now if self.handing == "pause" else asked
        old = self._planned(now if self.handing != "pause" else asked) if self._chunks else None
        self._chunks.append((begin, np.asarray(chunk.actions)))
        new = self._planned(now)
        if old is not None and new is not None:
            self._seam = np.abs(new - old)
        if self.handing != "ensemble":
            del self._chunks[:-1]
        self._chunks = [c for c in self._chunks[:-1] if c[0] + len(c[1]) > now] + self._chunks[-1:]

    def action(self, step: int) -> Float[Array, " d"]:
        """What is executed at a step: the plan's action, or standing still with the hand as it is."""
        planned = self._planned(step)
        if planned is None:
            return self.stand()
        if self._seam is not None:
            self.seam_steps.append(step)
            self.seam_jumps.append(self._seam)
            self._seam = None
        self._last = planned
        return planned

    def stand(self) -> Float[Array, " d"]:
        """Zeros, which these robots take as no motion, and the last command of the grippers."""
        self.standing += 1
        still = np.zeros_like(self._chunks[-1][1][0]) if self._last is None else np.zeros_like(self._last)
        if self._last is not None:
            still[list(self.grippers)] = self._last[list(self.grippers)]
        return still

    def arrays(self, surprises: Sequence[float]) -> dict[str, Array]:
        """How chunks took over from each other, for the episode's side file."""
        width = self._chunks[-1][1].shape[1] if self._chunks else 0
        return {
            "seam_steps": np.asarray(self.seam_steps, dtype=np.int64),
            "seam_jumps": np.asarray(self.seam_jumps, dtype=np.float64).reshape(len(self.seam_jumps), width),
            "surprises": np.asarray(surprises, dtype=np.float64),
            "standing": np.asarray(self.standing, dtype=np.int64),
            "grippers": np.asarray(self.grippers, dtype=np.int64),
        }

    def _planned(self, step: int) -> Float[Array, " d"] | None:
        known = [actions[step - begin] for begin, actions in self._chunks if begin <= step < begin + len(actions)]
        if not known:
            return None
        if self.handing != "ensemble":
            return np.array(known[-1])
        weights = np.exp(-ENSEMBLE_DECAY * np.arange(len(known)))
        return np.asarray(np.average(known, axis=0, weights=weights), dtype=known[-1].dtype)
