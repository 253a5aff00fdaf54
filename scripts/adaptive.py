"""`make adaptive`: does it pay to look again sooner where the policy is in doubt? Measured in the embedded scene.

The base checkpoint, median decoding, four ways to execute its chunks of ten: always three steps per look, always ten,
and adaptively (`Replanning`) with two thresholds. The thresholds are those at which the chunks of a few episodes
would have been followed for three and for five steps per look; these episodes begin in states that no proof uses, and
whether they succeeded is not looked at. Then all four run on the same other states. A stopped run goes on where it
was.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lerobot_policy_quantile.adapters.lerobot_folder import fingerprint, load_lerobot_policy
from lerobot_policy_quantile.contract import Array, Chunk, Observation, World
from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.rollout import run_episode
from lerobot_policy_quantile.evaluation.tables.intervals import Interval, wilson
from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint
from lerobot_policy_quantile.pretraining.proof import require_same_policy
from lerobot_policy_quantile.pretraining.student import CAMERA_SIZE
from lerobot_policy_quantile.scenes.embedded import EmbeddedScene
from lerobot_policy_quantile.serving.spread import Replanning, motion_spread, spread

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
        """As the table and the file of episodes call it."""
        return f"fixed {self.steps}" if self.steps else f"adaptive {self.threshold:.4f}"


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


class FollowedPolicy:
    """A policy whose chunks are cut to the steps that shall be executed."""

    needs_images = True

    def __init__(self, policy: Any, way: Way) -> None:
        self._policy, self._way = policy, way
        self._levels = [float(level) for level in quantile_levels(policy.config.n_quantiles)]
        self.n_action_steps = way.steps or int(policy.config.chunk_size)
        self.context: Mapping[str, str] = {**policy.context, "way": way.name}
        self.doubt: list[float] = []

    def begin(self, seed: int, world: World, decoder: str) -> Any:
        """The policy's own memory."""
        self.doubt = []
        return self._policy.begin(seed, world, decoder)

    def act(self, observations: Sequence[Observation], memories: Sequence[Any]) -> list[Chunk]:
        """The policy's chunks, cut where doubt begins."""
        return [self._cut(chunk) for chunk in self._policy.act(observations, memories)]

    def _cut(self, chunk: Chunk) -> Chunk:
        if chunk.quantiles is None:
            raise ValueError("policy must predict quantiles; got a chunk without them")
        widths, grippers = spread(np.asarray(chunk.quantiles), self._levels), self._policy.config.gripper_dims
        self.doubt += [round(float(width), 5) for width in motion_spread(widths, grippers)]
        if self._way.steps:
            return chunk
        steps = Replanning(self._way.threshold, LEAST).steps(widths, grippers)
        return Chunk(chunk.actions[:steps], chunk.quantiles)


@cache
def _policy(folder: Path) -> Any:
    import torch

    import lerobot_policy_quantile

    torch.set_num_threads(1)
    _ = lerobot_policy_quantile.QuantileConfig  # LeRobot's discovery skips a package that is already imported
    return load_lerobot_policy(folder)


@cache
def _scene() -> EmbeddedScene:
    return EmbeddedScene("embedded", obstacle=False, camera_size=CAMERA_SIZE)


def run_one(folder: Path, way: Way, task: int, index: int) -> Episode:
    """One episode; a process keeps its simulator and its policy."""
    policy = FollowedPolicy(_policy(folder), way)
    rollout = run_episode(_scene(), policy, EpisodeKey("embedded", task, index, 0, "base", "median"))
    outcome = rollout.outcome
    if outcome.status == "error":
        raise RuntimeError(f"{way.name}, task {task}, index {index}: {outcome.traceback}")
    looks = len(rollout.trace.query_steps)
    return Episode(way.name, task, index, outcome.status == "success", outcome.steps, looks, policy.doubt)


def episodes(folder: Path, wanted: Sequence[tuple[Way, int, int]], file: Path, pool: Executor) -> Iterator[Episode]:
    """What the file holds already, then what it does not, written as it ends."""
    done = [Episode(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []
    stored = {(episode.way, episode.task, episode.index): episode for episode in done}
    missing = []
    for way, task, index in wanted:
        if (way.name, task, index) in stored:
            yield stored[way.name, task, index]
        else:
            missing.append((way, task, index))
    if not missing:
        return
    for episode in pool.map(partial(run_one, folder), *zip(*missing, strict=True)):
        with file.open("a") as lines:
            lines.write(json.dumps(asdict(episode)) + "\n")
        yield episode


def thresholds(seen: Sequence[Episode]) -> list[float]:
    """The spreads at which the chunks seen would have been followed for so many steps per look."""
    doubt = np.array([width for episode in seen for width in episode.doubt]).reshape(-1, CHUNK_SIZE)
    candidates = np.unique(doubt.round(4))
    per_look = np.array([steps_per_look(doubt, threshold) for threshold in candidates])
    return [float(candidates[np.argmax(per_look >= steps)]) for steps in STEPS_PER_LOOK]


def steps_per_look(doubt: Float[Array, "n h"], threshold: float) -> float:
    """Steps over looks if every chunk stood for as many steps as any other: the harmonic mean of their lengths."""
    over = doubt > threshold
    steps = np.where(over.any(axis=1), over.argmax(axis=1), CHUNK_SIZE).clip(LEAST, CHUNK_SIZE)
    return float(1 / (1 / steps).mean())


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
    parser.add_argument("--out", type=Path, default=Path("runs/adaptive/episodes.jsonl"), help="one line per episode")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    folder, notes = base_checkpoint(), Console(stderr=True)
    require_same_policy(options.out, fingerprint(folder))
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        three = Way(steps=3)
        first = [(three, task, index) for index in CHOOSING for task in TASKS]
        chosen = thresholds(list(track(episodes(folder, first, options.out, pool), "choosing", len(first))))
        notes.print(f"thresholds for {STEPS_PER_LOOK} steps per look on {len(first)} other states: {chosen}")
        ways = [three, Way(steps=10), *(Way(threshold=value) for value in chosen)]
        wanted = [(way, task, index) for index in MEASURING for task in TASKS for way in ways]  # state by state
        measured = list(track(episodes(folder, wanted, options.out, pool), "measuring", len(wanted)))
    columns = (
        "steps per look",
        "in the basket",
        "95 %",
        "looks per episode",
        "steps per look, mean",
        "steps to success",
    )
    table = Table(*columns, title="Base checkpoint, median decoding; 95 % intervals", title_justify="left")
    for way in ways:
        table.add_row(*row(way.name, [episode for episode in measured if episode.way == way.name]))
    Console(width=140).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
