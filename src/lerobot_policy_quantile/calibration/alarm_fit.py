"""Alarms from journals: a time-varying conformal band of successful episodes, and how an alarm does on a run.

Functional conformal prediction: half of the successful episodes say where signals are over time (centre and scale), the
other half how far an episode strays from it at most. Of new episodes exchangeable with them, a share alpha at most
strays further (Diquigiovanni et al. 2022).

Axes: q replan of an episode, t bin of control steps, s signal, e episode.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from lerobot_policy_quantile.calibration.spread import SIDE, motion_units
from lerobot_policy_quantile.core.conformal import episodes_needed
from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.serving.alarm import Alarm, AlarmBand, AlarmMonitor, AlarmReading
from lerobot_policy_quantile.serving.signals import SIGNALS, SignalUnits, reference_widths
from lerobot_policy_quantile.util.digests import seed_of
from lerobot_policy_quantile.util.quantiles import Array

LEAST_VALUES = 10
"""Values behind a centre and a scale; a bin that has fewer takes its neighbours'."""
LEAST_SCALE = 0.05
"""What no scale falls below, in the signals' own units (mean widths; ranks): a signal that hardly ever moves in the
episodes of the band would otherwise raise the alarm at its first small move."""


@dataclass(frozen=True)
class RecordedEpisode:
    """The replans of one episode."""

    row: Row
    steps: Int[Array, " q"]
    quantiles: Float[Array, "q h d k"]


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


def read_episodes(run: Path, rows: Sequence[Row]) -> list[RecordedEpisode]:
    """The replans of these rows, from the run's side files."""
    files = SideFiles((run if run.is_dir() else run.parent) / SIDE)
    found = []
    for row in rows:
        if not files.path(row.key).is_file():
            raise ValueError(
                f"episode {row.key.text} has no side file {files.path(row.key)}: run qhead eval without"
                " --no-side-files, or choose others with --task"
            )
        arrays = files.read(row.key)
        if "quantiles" not in arrays:
            raise ValueError(f"RUN must be of a policy that predicts quantiles; {row.key.policy!r} has none")
        count = len(arrays["quantiles"])
        found.append(RecordedEpisode(row, arrays["query_steps"][:count], arrays["quantiles"]))
    return found


def fit_alarm(
    episodes: Sequence[RecordedEpisode], *, alpha: float, signals: Sequence[str] = SIGNALS, seed: int = 0
) -> Alarm:
    """The alarm of the successful ones among these episodes, all of one policy, scene and decoder."""
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
    shaping, judging = ([good[i] for i in order[part::2]] for part in (0, 1))
    levels = tuple(float(level) for level in quantile_levels(good[0].quantiles.shape[-1]))
    motion = motion_units(None, good[0].quantiles.shape[2], []).motion
    units = SignalUnits(levels, motion, reference_widths([e.quantiles for e in shaping], levels, motion))
    band = fit_band(shaping, units, signals, alpha)
    key = good[0].row.key
    alarm = Alarm(
        policy=str(next(iter(made))),
        scene=key.scene,
        decoder=key.decoder,
        signals=tuple(signals),
        alpha=alpha,
        threshold=math.inf,
        band=band,
        units=units,
        episodes=(len(shaping), len(judging)),
    )
    scores = sorted(watch(alarm, e).score for e in judging)
    place = math.ceil((len(scores) + 1) * (1 - alpha) - 1e-9)
    return Alarm(**{**vars(alarm), "threshold": scores[place - 1]})


def fit_band(
    episodes: Sequence[RecordedEpisode], units: SignalUnits, signals: Sequence[str], alpha: float
) -> AlarmBand:
    """Mean and deviation of each signal per bin of control steps, neighbours taken in where values are few.

    Deviations are then stretched until each signal alone leaves the band of scale 1 in a share alpha of these episodes
    at most: one with rare large values would otherwise decide for all.
    """
    steps, values = [], []
    for episode in episodes:
        steps.append(episode.steps)
        values.append(signal_rows(episode, units, signals))
    gaps = np.concatenate([np.diff(own) for own in steps])
    stride = max(1, int(np.median(gaps))) if len(gaps) else 1
    bins, rows = np.concatenate(steps) // stride, np.concatenate(values)
    count = int(bins.max()) + 1
    center, scale = np.zeros((count, len(signals))), np.ones((count, len(signals)))
    for s in range(len(signals)):
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
        ends = np.cumsum([len(own) for own in steps])[:-1]
        most = [np.nanmax(own) for own in np.split(excess, ends) if np.isfinite(own).any()]
        scale[:, s] *= max(float(np.quantile(most, 1 - alpha)), 1.0)
    return AlarmBand(stride, center, scale)


def signal_rows(episode: RecordedEpisode, units: SignalUnits, signals: Sequence[str] = SIGNALS) -> Float[Array, "q s"]:
    """The signals of every replan of an episode."""
    found, before, last = [], None, 0
    for step, quantiles in zip(episode.steps, episode.quantiles, strict=True):
        told = units.signals(quantiles, before, int(step) - last)
        found.append([told[name] for name in signals])
        before, last = quantiles, int(step)
    return np.array(found).reshape(len(found), len(signals))


def watch(alarm: Alarm, episode: RecordedEpisode) -> WatchedEpisode:
    """What the alarm would have said in an episode."""
    monitor = AlarmMonitor(alarm)
    pairs = zip(episode.steps, episode.quantiles, strict=True)
    return WatchedEpisode(episode.row, tuple(monitor.observe(int(step), quantiles) for step, quantiles in pairs))
