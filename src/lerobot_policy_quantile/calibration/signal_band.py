"""Bands of signals over time: where successful episodes are, how far from it they stray, what lies outside.

Functional conformal prediction: half of the successful episodes say where signals are over time (centre and scale), the
other half how far an episode strays from it at most. Of new episodes exchangeable with them, a share alpha at most
strays further (Diquigiovanni et al. 2022). Signals are any numbers told at every replan.

Axes: q replan of an episode, t bin of control steps, s signal, e episode.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Float, Int

from lerobot_policy_quantile.core.conformal import episodes_needed
from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.serving.alarm import AlarmBand, AlarmReading
from lerobot_policy_quantile.util.digests import seed_of
from lerobot_policy_quantile.util.quantiles import Array

LEAST_VALUES = 10
"""Values behind a centre and a scale; a bin that has fewer takes its neighbours'."""
LEAST_SCALE = 0.05
"""What no scale falls below, in the signals' own units (mean widths; ranks): a signal that hardly ever moves in the
episodes of the band would otherwise raise the alarm at its first small move."""


class HasRow(Protocol):
    """An episode of a run."""

    @property
    def row(self) -> Row:
        """What the journal says of it."""


@dataclass(frozen=True)
class SignalTrace:
    """The signals of one episode."""

    row: Row
    steps: Int[Array, " q"]
    values: Float[Array, "q s"]


@dataclass(frozen=True)
class WatchedEpisode:
    """An alarm's readings of one episode."""

    row: Row
    readings: tuple[AlarmReading, ...]

    @property
    def failed(self) -> bool:
        """Whether it ended without success."""
        return self.row.status != "success"

    @property
    def score(self) -> float:
        """The largest of its replans."""
        return max((reading.score for reading in self.readings), default=-math.inf)

    @property
    def first(self) -> int | None:
        """Control step of the first alarm."""
        return self.readings[-1].first if self.readings else None

    @property
    def lead(self) -> int | None:
        """Control steps from the first alarm to the limit of the episode."""
        limit = self.row.versions.get("limit")
        return None if self.first is None or limit is None else int(limit) - self.first


def successful_halves[E: HasRow](episodes: Sequence[E], alpha: float, seed: int = 0) -> tuple[list[E], list[E]]:
    """The successful ones among episodes in two halves, for the band and for the threshold; too few are refused."""
    if not 0 < alpha < 1:
        raise ValueError(f"--alpha must lie strictly between 0 and 1; got {alpha}")
    good = sorted((e for e in episodes if e.row.status == "success"), key=lambda e: e.row.key.text)
    needed = episodes_needed(1 - alpha)
    if len(good) // 2 < needed:
        raise ValueError(
            f"--alpha {alpha:g} needs at least {2 * needed} successful episodes, half of them for the threshold, so"
            f" that ceil((n + 1) {1 - alpha:g}) <= n; got {len(good)}: run more, or ask for a larger alpha"
        )
    made = {e.row.versions.get("policy") for e in good}
    if len(made) > 1:
        raise ValueError(f"RUN must be of one policy; its successful episodes were made by {sorted(map(str, made))}")
    order = np.random.default_rng(seed_of(f"alarm {seed}")).permutation(len(good))
    return [good[i] for i in order[0::2]], [good[i] for i in order[1::2]]


def fit_band(traces: Sequence[SignalTrace], alpha: float) -> AlarmBand:
    """Mean and deviation of each signal per bin of control steps, neighbours taken in where values are few.

    Deviations are then stretched until each signal alone leaves the band of scale 1 in a share alpha of these episodes
    at most: one with rare large values would otherwise decide for all.
    """
    gaps = np.concatenate([np.diff(trace.steps) for trace in traces])
    stride = max(1, int(np.median(gaps))) if len(gaps) else 1
    bins = np.concatenate([trace.steps for trace in traces]) // stride
    rows = np.concatenate([trace.values for trace in traces])
    ends = np.cumsum([len(trace.steps) for trace in traces])[:-1]
    count, signals = int(bins.max()) + 1, rows.shape[1]
    center, scale = np.zeros((count, signals)), np.ones((count, signals))
    for s in range(signals):
        there = np.isfinite(rows[:, s])
        known, where = rows[there, s], bins[there]
        if not len(known):
            continue
        for t in range(count):
            near = np.abs(where - t)
            radius = np.sort(near)[min(LEAST_VALUES, len(near)) - 1]
            around = known[near <= radius]
            center[t, s], scale[t, s] = around.mean(), max(float(around.std()), LEAST_SCALE)
        excess = (rows[:, s] - center[bins, s]) / scale[bins, s]
        most = [np.nanmax(own) for own in np.split(excess, ends) if np.isfinite(own).any()]
        scale[:, s] *= max(float(np.quantile(most, 1 - alpha)), 1.0)
    return AlarmBand(stride, center, scale)


def threshold_of(scores: Sequence[float], alpha: float) -> float:
    """The score that a new episode exceeds with a probability of alpha at most."""
    place = math.ceil((len(scores) + 1) * (1 - alpha) - 1e-9)
    return sorted(scores)[place - 1]


def watch_signals(band: AlarmBand, threshold: float, trace: SignalTrace, names: Sequence[str]) -> WatchedEpisode:
    """What an alarm with this band and threshold would have said in an episode."""
    readings: list[AlarmReading] = []
    first = None
    for step, values in zip(trace.steps, trace.values, strict=True):
        score = band.excess(int(step), values)
        if (on := score > threshold) and first is None:
            first = int(step)
        readings.append(AlarmReading(int(step), score, on, first, dict(zip(names, map(float, values), strict=True))))
    return WatchedEpisode(trace.row, tuple(readings))
