"""What announces failures: quantile signals, disagreement of seeds, spread of flow samples, time; one alarm for each.

All are judged on the same episodes and fitted alike: a band and a threshold from successful episodes.

Axes: q replan, h chunk step, d action dim, m motion dim.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from lerobot_policy_quantile.calibration.alarm_fit import RecordedEpisode, fit_alarm, read_episodes, watch
from lerobot_policy_quantile.calibration.signal_band import (
    SignalTrace,
    WatchedEpisode,
    fit_band,
    successful_halves,
    threshold_of,
    watch_signals,
)
from lerobot_policy_quantile.calibration.spread import motion_units
from lerobot_policy_quantile.contract import Array
from lerobot_policy_quantile.core.heads import FlowHead
from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.evaluation.whole_run import SIDE
from lerobot_policy_quantile.serving.alarm import AlarmBand
from lerobot_policy_quantile.serving.signals import SIGNALS
from lerobot_policy_quantile.studies.doubt.settings import FLOW_SAMPLES, TRAINING_SEEDS
from lerobot_policy_quantile.studies.doubt.shadows import SAMPLES, SEEDS

NOTHING = 1e-9
"""What no mean deviation falls below."""


@dataclass(frozen=True)
class ShadowedEpisode:
    """The replans of one episode, and what the policies asked beside the driver differed by."""

    recorded: RecordedEpisode
    deviations: Mapping[str, Float[Array, "q h d"]]

    @property
    def row(self) -> Row:
        """What the journal says of it."""
        return self.recorded.row

    @property
    def steps(self) -> Int[Array, " q"]:
        """Control steps of its replans."""
        return self.recorded.steps


Watch = Callable[[Sequence[ShadowedEpisode], Sequence[ShadowedEpisode], float], list[WatchedEpisode]]
"""From fitting episodes, new ones and alpha to what the fitted alarm says in the new ones."""


@dataclass(frozen=True)
class FailureWatcher:
    """One way to announce failures."""

    name: str
    expert_passes: int
    """Per replan."""
    watch: Watch


def read_shadowed(run: Path, rows: Sequence[Row]) -> list[ShadowedEpisode]:
    """Episodes of a run with their notes."""
    files = SideFiles(run / SIDE)
    found = []
    for episode in read_episodes(run, rows):
        arrays = files.read(episode.row.key)
        found.append(ShadowedEpisode(episode, {name: arrays[name] for name in (SEEDS, SAMPLES)}))
    return found


def by_quantiles(*signals: str) -> Watch:
    """The package's own alarm, of these signals."""

    def judge(known: Sequence[ShadowedEpisode], new: Sequence[ShadowedEpisode], alpha: float) -> list[WatchedEpisode]:
        alarm = fit_alarm([episode.recorded for episode in known], alpha=alpha, signals=signals)
        return [watch(alarm, episode.recorded) for episode in new]

    return judge


def by_deviation(note: str) -> Watch:
    """Mean deviation over chunk steps and motion dimensions, each in its mean on successful episodes, as widths are."""

    def judge(known: Sequence[ShadowedEpisode], new: Sequence[ShadowedEpisode], alpha: float) -> list[WatchedEpisode]:
        shaping, judging = successful_halves(known, alpha)
        motion = list(motion_units(None, shaping[0].deviations[note].shape[2], []).motion)
        usual = np.concatenate([episode.deviations[note][..., motion] for episode in shaping]).mean(axis=(0, 1))

        def trace(episode: ShadowedEpisode) -> SignalTrace:
            relative = episode.deviations[note][..., motion] / np.maximum(usual, NOTHING)
            return SignalTrace(episode.row, episode.steps, relative.mean(axis=(1, 2))[:, None])

        band = fit_band([trace(episode) for episode in shaping], alpha)
        return _watched(band, [trace(episode) for episode in judging], [trace(episode) for episode in new], note, alpha)

    return judge


def by_time(known: Sequence[ShadowedEpisode], new: Sequence[ShadowedEpisode], alpha: float) -> list[WatchedEpisode]:
    """The number of control steps so far: an alarm for episodes that take longer than successful ones."""
    _, judging = successful_halves(known, alpha)

    def trace(episode: ShadowedEpisode) -> SignalTrace:
        return SignalTrace(episode.row, episode.steps, episode.steps[:, None].astype(float))

    flat = AlarmBand(1, np.zeros((1, 1)), np.ones((1, 1)))
    return _watched(flat, [trace(episode) for episode in judging], [trace(episode) for episode in new], "time", alpha)


def _watched(
    band: AlarmBand, judging: Sequence[SignalTrace], new: Sequence[SignalTrace], name: str, alpha: float
) -> list[WatchedEpisode]:
    scores = [watch_signals(band, math.inf, trace, (name,)).score for trace in judging]
    threshold = threshold_of(scores, alpha)
    return [watch_signals(band, threshold, trace, (name,)) for trace in new]


ALL = FailureWatcher("all quantile signals", 1, by_quantiles(*SIGNALS))
OF_SEEDS = FailureWatcher("disagreement of three seeds", len(TRAINING_SEEDS), by_deviation(SEEDS))
OF_SAMPLES = FailureWatcher("spread of 8 flow samples", FLOW_SAMPLES * FlowHead.expert_calls, by_deviation(SAMPLES))
OF_TIME = FailureWatcher("time alone", 0, by_time)
WATCHERS = (
    ALL,
    *(FailureWatcher(f"`{name}`", 1, by_quantiles(name)) for name in SIGNALS),
    OF_SEEDS,
    OF_SAMPLES,
    OF_TIME,
)


def watch_by_scene(
    watcher: FailureWatcher, known: Sequence[ShadowedEpisode], new: Sequence[ShadowedEpisode], alpha: float
) -> list[WatchedEpisode]:
    """An alarm per scene, fitted and judged on that scene's episodes."""
    found: list[WatchedEpisode] = []
    for scene in dict.fromkeys(episode.row.key.scene for episode in new):
        own, judged = ([e for e in side if e.row.key.scene == scene] for side in (known, new))
        found += watcher.watch(own, judged, alpha)
    return found
