"""`make adaptive`: does it pay to look again sooner where the policy is in doubt? Measured in the embedded scene.

The base checkpoint, median decoding, four ways to execute its chunks of ten: always three steps per look, always ten,
and adaptively (`Replanning`) with two thresholds. The thresholds are those at which the chunks of a few episodes
would have been followed for three and for five steps per look; these episodes begin in states that no proof uses, and
whether they succeeded is not looked at. Then all four run on the same other states. A stopped run goes on where it
was.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from lerobot.configs import PreTrainedConfig
from rich.console import Console

from lerobot_policy_quantile.adapters.factory import SceneFactory
from lerobot_policy_quantile.contract import Array, Policy, World
from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.evaluation.engine import EngineError
from lerobot_policy_quantile.evaluation.journal import JournalError, Row
from lerobot_policy_quantile.evaluation.plan import EpisodeKey, Plan
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from lerobot_policy_quantile.evaluation.tables.intervals import Interval, wilson
from lerobot_policy_quantile.evaluation.whole_run import SIDE, UnfinishedError, run_whole
from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint
from lerobot_policy_quantile.pretraining.student import CAMERA_SIZE
from lerobot_policy_quantile.serving.spread import motion_spread, spread
from lerobot_policy_quantile.studies.adaptive_threshold import matching_threshold
from lerobot_policy_quantile.util.processes import share_cores
from lerobot_policy_quantile.util.tables import boxed

TASKS = (1, 2, 3, 4)
CHOOSING, MEASURING = range(1), range(45, 50)
"""Indices of the tasks: the first were looked at before, when three steps per look were chosen; the others were not."""
STEPS_PER_LOOK = (3, 5)
"""Thresholds are chosen for about so many steps per look: as often as the fixed three, and less often."""
LEAST, CHUNK_SIZE = 2, 10


@dataclass(frozen=True)
class Way:
    """How far a chunk is followed: a fixed number of steps, or as far as a spread threshold allows."""

    steps: int = 0
    threshold: float = 0.0

    @property
    def name(self) -> str:
        """As the table calls it."""
        return f"fixed {self.steps}" if self.steps else f"adaptive {self.threshold:.4f}"

    @property
    def rule(self) -> str:
        """As `qhead eval --replan` takes it; in the journal it stands for the policy."""
        return f"fixed:{self.steps}" if self.steps else f"adaptive:{self.threshold:.4f},least={LEAST}"


@dataclass(frozen=True)
class WayFactory:
    """The base checkpoint by the name of its way; sent to worker processes."""

    checkpoint: str

    def world(self, scene: str) -> World:
        """The embedded scene."""
        return SceneFactory(camera_size=CAMERA_SIZE).world(scene)

    def policy(self, policy: str) -> Policy:
        """The checkpoint, followed as the name says."""
        return SceneFactory({policy: self.checkpoint}, replan=policy).policy(policy)

    def policy_context(self, policy: str) -> Mapping[str, str] | None:
        """The checkpoint's, with its way."""
        return SceneFactory({policy: self.checkpoint}, replan=policy).policy_context(policy)


@dataclass(frozen=True)
class Episode:
    """How one episode went. `doubt` is the mean motion spread of every step of every chunk, for choosing thresholds."""

    way: str
    task: int
    index: int
    success: bool
    steps: int
    looks: int
    doubt: list[float]


@dataclass(frozen=True)
class Measurement:
    """Where episodes are run and kept."""

    out: Path
    workers: int
    notes: Console
    checkpoint: Path

    def episodes(self, ways: Sequence[Way], indices: Sequence[int]) -> list[Episode]:
        """All ways on all tasks, state by state; what the journal holds already is not run again."""
        wanted = [(way, task, index) for index in indices for task in TASKS for way in ways]
        plan = Plan(tuple(EpisodeKey("embedded", task, index, 0, way.rule, "median") for way, task, index in wanted))
        factory = WayFactory(str(self.checkpoint))
        rows = {row.key: row for row in run_whole(plan, self.out, factory, workers=self.workers, console=self.notes)}
        return [self._episode(way, rows[key]) for (way, _, _), key in zip(wanted, plan, strict=True)]

    def _episode(self, way: Way, row: Row) -> Episode:
        arrays, config = SideFiles(self.out / SIDE).read(row.key), PreTrainedConfig.from_pretrained(self.checkpoint)
        levels = [float(level) for level in quantile_levels(config.n_quantiles)]
        doubt = doubt_of(arrays["quantiles"], levels, config.gripper_dims)
        looks = len(arrays["query_steps"])
        return Episode(way.name, row.key.task, row.key.index, row.status == "success", row.steps, looks, doubt)


def doubt_of(quantiles: Float[Array, "n h d k"], levels: Sequence[float], grippers: Sequence[int]) -> list[float]:
    """Mean spread of the motion coordinates, step by step, chunk after chunk."""
    return [round(float(width), 5) for chunk in quantiles for width in motion_spread(spread(chunk, levels), grippers)]


def thresholds(seen: Sequence[Episode]) -> list[float]:
    """The spreads at which the chunks seen would have been followed for so many steps per look."""
    doubt = np.array([width for episode in seen for width in episode.doubt]).reshape(-1, CHUNK_SIZE)
    return [matching_threshold(doubt, steps, LEAST) for steps in STEPS_PER_LOOK]


def bootstrap_mean(values: Sequence[float]) -> Interval:
    """A mean over dozens of episodes with the 95 % percentile bootstrap of ten thousand resamples."""
    figures = np.asarray(values, dtype=np.float64)
    draws = np.random.default_rng(0).integers(len(figures), size=(10_000, len(figures)))
    low, high = np.quantile(figures[draws].mean(axis=1), [0.025, 0.975])
    return Interval(float(figures.mean()), float(low), float(high))


def row(name: str, members: Sequence[Episode]) -> list[str]:
    """Success, looks and steps with their intervals."""
    hits = [episode for episode in members if episode.success]
    looks = bootstrap_mean([float(episode.looks) for episode in members])
    per_look = sum(episode.steps for episode in members) / sum(episode.looks for episode in members)
    steps = bootstrap_mean([float(episode.steps) for episode in hits]) if hits else None
    rate = wilson(len(hits) / len(members), len(members))
    return [
        name,
        f"{len(hits)} of {len(members)}",
        f"{rate.low:.0%} to {rate.high:.0%}",
        _figure(looks),
        f"{per_look:.1f}",
        _figure(steps) if steps else "-",
    ]


def _figure(value: Interval) -> str:
    return f"{value.value:.1f} ({value.low:.1f} to {value.high:.1f})"


def main() -> int:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/adaptive"), help="folder of the journal")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    share_cores(options.workers)
    notes, three = Console(stderr=True), Way(steps=3)
    measurement = Measurement(options.out, options.workers, notes, base_checkpoint())
    try:
        first = measurement.episodes([three], CHOOSING)
        chosen = thresholds(first)
        notes.print(f"thresholds for {STEPS_PER_LOOK} steps per look on {len(first)} other states: {chosen}")
        ways = [three, Way(steps=10), *(Way(threshold=value) for value in chosen)]
        measured = measurement.episodes(ways, MEASURING)
    except (UnfinishedError, JournalError, EngineError) as error:
        notes.print(str(error), markup=False, highlight=False)
        return 1
    columns = (
        "steps per look",
        "in the basket",
        "95 %",
        "looks per episode",
        "steps per look, mean",
        "steps to success",
    )
    rows = [row(way.name, [episode for episode in measured if episode.way == way.name]) for way in ways]
    Console(width=140).print(boxed("Base checkpoint, median decoding; 95 % intervals", columns, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
