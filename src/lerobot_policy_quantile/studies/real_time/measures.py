"""What the study asks of an episode: whether it kept its side of the obstacle, whether surprise told of a push, where
seams come from.

Axes: n step, q query.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from lerobot_policy_quantile.calibration.auroc import auroc
from lerobot_policy_quantile.contract import Array

FORK = 0.01
"""Metres beside the straight way: farther out, a side has been chosen."""
WINDOW = 20
"""Steps after a push in which surprise may tell of it."""
ALARM = 0.95
"""Quantile of undisturbed surprise above which an alarm is raised."""
ROUNDING = 1e-6
"""Of actions."""


def changed_side(path: Float[Array, "n 3"], plane: Float[Array, "3"], ahead: Float[Array, "2"]) -> bool | None:
    """Whether a path changed from one side of the straight way to the other before it passed the obstacle's plane.

    The straight way leads through the obstacle's centre. None for a path that chose no side or never passed.
    """
    relative = path[:, :2] - plane[:2]
    passed = np.flatnonzero(relative @ ahead >= 0)
    if not len(passed):
        return None
    beside = relative[: passed[0] + 1] @ np.array([-ahead[1], ahead[0]])
    chosen = np.sign(beside[np.abs(beside) > FORK])
    return bool((chosen != chosen[0]).any()) if len(chosen) else None


@dataclass(frozen=True)
class Watched:
    """The surprise of one episode, query by query."""

    steps: Int[Array, " q"]
    surprises: Float[Array, " q"]

    def within(self, step: int) -> Float[Array, " q"]:
        """Surprises of queries in the window after a step."""
        inside = (self.steps > step) & (self.steps <= step + WINDOW) & np.isfinite(self.surprises)
        return np.asarray(self.surprises[inside])

    def first_above(self, threshold: float, after: int) -> int | None:
        """Steps from a moment until surprise exceeds a threshold, in the window; None if it does not."""
        above = (self.steps > after) & (self.steps <= after + WINDOW) & (self.surprises > threshold)
        return int(self.steps[above][0] - after) if above.any() else None


@dataclass(frozen=True)
class PushReport:
    """How well surprise tells pushed episodes from the same ones undisturbed."""

    episodes: int
    auroc: float
    """P(largest surprise after the push > largest of the undisturbed episode in the same window), ties half."""
    alarmed: float
    """Share of pushed episodes with an alarm in the window."""
    median_steps: float
    """From push to alarm, over the alarmed ones."""


def push_report(pushed: list[tuple[int, Watched]], calm: list[Watched]) -> PushReport:
    """Pairs of the same key: the step of the push with the pushed episode, and the undisturbed one."""
    pairs = [
        (at, hit, rest)
        for (at, hit), rest in zip(pushed, calm, strict=True)
        if at >= 0 and hit.within(at).size and rest.within(at).size
    ]
    if not pairs:
        raise ValueError(f"pushed must hold episodes that went on after their push; got none of {len(pushed)}")
    hits = np.array([hit.within(at).max() for at, hit, _ in pairs])
    rests = np.array([rest.within(at).max() for at, _, rest in pairs])
    threshold = float(
        np.quantile(np.concatenate([rest.surprises[np.isfinite(rest.surprises)] for *_, rest in pairs]), ALARM)
    )
    waits = [wait for at, hit, _ in pairs if (wait := hit.first_above(threshold, at)) is not None]
    pushed_ones = np.arange(2 * len(pairs)) < len(pairs)
    return PushReport(
        len(pairs),
        auroc(np.concatenate([hits, rests]), pushed_ones),
        len(waits) / len(pairs),
        float(np.median(waits)) if waits else float("nan"),
    )


@dataclass(frozen=True)
class SeamReport:
    """Seams of rank handover under the median, beside what swapping would have done at the same queries."""

    coordinates: int
    """Motion coordinates of all seams."""
    inside: float
    """Share of them in which the old plan lay inside the new law's learned levels."""
    inside_ratio: float | None
    """There: mean jump over the mean jump to the new median; None without any."""
    outside_ratio: float | None
    """Where it lay outside: the law keeps the new chunk from going all the way."""


def seam_report(episodes: Sequence[Mapping[str, Array]], delay: int, median: int) -> SeamReport:
    """From side files of episodes with rank handover and this delay; `median`: number of the median's level.

    The executed action lies between the new median and the old plan's action, so the jump tells where that was.
    """
    jumps, whole, inside = [], [], []
    for arrays in episodes:
        quantiles = dict(zip(arrays["query_steps"].tolist(), arrays["quantiles"], strict=False))
        motion = np.delete(np.arange(arrays["actions"].shape[1]), arrays["grippers"])
        for step, jump in zip(arrays["seam_steps"].tolist(), arrays["seam_jumps"][:, motion], strict=True):
            law, new = quantiles[step - delay][delay, motion], arrays["actions"][step, motion]
            own = law[:, median]
            old = new + np.where(new >= own, jump, -jump)
            jumps.append(jump)
            whole.append(np.abs(old - own))
            inside.append((old >= law[:, 0] - ROUNDING) & (old <= law[:, -1] + ROUNDING))
    if not jumps:
        raise ValueError("episodes must have a seam; got none")
    jumped, wholly, within = np.concatenate(jumps), np.concatenate(whole), np.concatenate(inside)
    ratios = [float(jumped[at].sum() / wholly[at].sum()) if wholly[at].any() else None for at in (within, ~within)]
    return SeamReport(len(jumped), float(within.mean()), *ratios)
