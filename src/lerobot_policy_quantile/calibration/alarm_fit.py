"""Alarms from journals: fitted on the successful episodes of a run, followed on others.

Axes: q replan of an episode, s signal.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from lerobot_policy_quantile.calibration.signal_band import (
    SignalTrace,
    WatchedEpisode,
    fit_band,
    successful_halves,
    threshold_of,
)
from lerobot_policy_quantile.calibration.spread import SIDE, motion_units
from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.serving.alarm import Alarm, AlarmMonitor
from lerobot_policy_quantile.serving.signals import SIGNALS, SignalUnits, reference_widths
from lerobot_policy_quantile.util.quantiles import Array


@dataclass(frozen=True)
class RecordedEpisode:
    """The replans of one episode."""

    row: Row
    steps: Int[Array, " q"]
    quantiles: Float[Array, "q h d k"]


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
    """The alarm of the successful ones among these episodes, all of one policy, scene and decoder.

    Signals that they never have are left out: where chunks are executed to their end, no plan is left to compare with.
    """
    shaping, judging = successful_halves(episodes, alpha, seed)
    levels = tuple(float(level) for level in quantile_levels(shaping[0].quantiles.shape[-1]))
    motion = motion_units(None, shaping[0].quantiles.shape[2], []).motion
    units = SignalUnits(levels, motion, reference_widths([e.quantiles for e in shaping], levels, motion))
    told = np.isfinite(np.concatenate([signal_trace(e, units, signals).values for e in shaping])).any(axis=0)
    if not told.any():
        raise ValueError(
            f"--signals must name one that the run's replans have; got {', '.join(signals)}, which need chunks that are"
            " longer than the part of them that is executed"
        )
    signals = [name for name, there in zip(signals, told, strict=True) if there]
    first = shaping[0].row
    alarm = Alarm(
        policy=str(first.versions.get("policy")),
        scene=first.key.scene,
        decoder=first.key.decoder,
        signals=tuple(signals),
        alpha=alpha,
        threshold=math.inf,
        band=fit_band([signal_trace(e, units, signals) for e in shaping], alpha),
        units=units,
        episodes=(len(shaping), len(judging)),
    )
    return replace(alarm, threshold=threshold_of([watch(alarm, e).score for e in judging], alpha))


def signal_trace(episode: RecordedEpisode, units: SignalUnits, signals: Sequence[str] = SIGNALS) -> SignalTrace:
    """The signals of every replan of an episode."""
    found, before, last = [], None, 0
    for step, quantiles in zip(episode.steps, episode.quantiles, strict=True):
        told = units.signals(quantiles, before, int(step) - last)
        found.append([told[name] for name in signals])
        before, last = quantiles, int(step)
    return SignalTrace(episode.row, episode.steps, np.array(found).reshape(len(found), len(signals)))


def watch(alarm: Alarm, episode: RecordedEpisode) -> WatchedEpisode:
    """What the alarm would have said in an episode."""
    monitor = AlarmMonitor(alarm)
    pairs = zip(episode.steps, episode.quantiles, strict=True)
    return WatchedEpisode(episode.row, tuple(monitor.observe(int(step), quantiles) for step, quantiles in pairs))
