"""Data generation in shards: each is a function of the seed and its number, so a stopped run goes on where it was."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lerobot_policy_quantile.evaluation.worker import end_with_parent
from lerobot_policy_quantile.pretraining.samples import THINGS, Samples

if TYPE_CHECKING:
    from lerobot_policy_quantile.scenes.staging import Stage

STREAM = 5_150_000
"""First number of every random key of this room: the stored initial states of the scenes use others."""

SPLITS = {"train": 1, "held_out": 2}


@dataclass(frozen=True)
class Shard:
    """One file of samples: so many static scenes, or one episode of play per thing."""

    split: str
    kind: str  # static | play
    number: int
    scenes: int = 0  # static only
    steps: int = 0  # play only: where an episode is cut off

    @property
    def file(self) -> str:
        """Its name inside the data folder."""
        return f"{self.split}-{self.kind}-{self.number:04d}.npz"

    def generator(self, seed: int) -> np.random.Generator:
        """Everything random in it."""
        return np.random.default_rng([STREAM, seed, SPLITS[self.split], self.kind == "play", self.number])


@dataclass(frozen=True)
class DataBudget:
    """How much data is made."""

    static_shards: int
    scenes_per_shard: int
    play_shards: int
    held_out_shards: int
    camera_size: int
    play_steps: int = 360

    def shards(self) -> list[Shard]:
        """All of them, held-out first, then both kinds evenly mixed."""
        size = self.scenes_per_shard
        held_out = [Shard("held_out", "static", number, size) for number in range(self.held_out_shards)]
        places = [((number + 0.5) / self.static_shards, "static", number) for number in range(self.static_shards)]
        places += [((number + 0.5) / self.play_shards, "play", number) for number in range(self.play_shards)]
        amount = {"static": {"scenes": size}, "play": {"steps": self.play_steps}}
        return held_out + [Shard("train", kind, number, **amount[kind]) for _, kind, number in sorted(places)]


@cache
def _stage(camera_size: int) -> "Stage":
    """One simulator per process, built when first needed."""
    from lerobot_policy_quantile.scenes.staging import Stage

    return Stage(camera_size)


def make_shard(shard: Shard, folder: Path, seed: int, camera_size: int) -> tuple[int, int]:
    """Write one shard; the number of samples, and of episodes that ended in the basket."""
    from lerobot_policy_quantile.pretraining.scenes_play import play_samples
    from lerobot_policy_quantile.pretraining.scenes_static import static_samples

    stage, rng = _stage(camera_size), shard.generator(seed)
    if shard.kind == "static":
        samples, solved = static_samples(stage, rng, shard.scenes), 0
    else:
        episodes = [play_samples(stage, rng, thing, shard.steps) for thing in THINGS]
        samples, solved = Samples.join([part for part, _ in episodes]), sum(good for _, good in episodes)
    samples.save(folder / shard.file)
    return len(samples), solved


def generate(budget: DataBudget, folder: Path, seed: int, workers: int) -> Iterator[tuple[Shard, int, int]]:
    """Make every shard that is missing; yields each when it is done, with its samples and its solved episodes."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [shard for shard in budget.shards() if not (folder / shard.file).exists()]
    if workers == 1:
        yield from ((shard, *make_shard(shard, folder, seed, budget.camera_size)) for shard in missing)
    elif missing:
        yield from _generate_in_processes(missing, folder, seed, budget.camera_size, workers)


def _generate_in_processes(
    shards: list[Shard], folder: Path, seed: int, camera_size: int, workers: int
) -> Iterator[tuple[Shard, int, int]]:
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=end_with_parent) as pool:
        jobs = {pool.submit(make_shard, shard, folder, seed, camera_size): shard for shard in shards}
        try:
            for job in as_completed(jobs):
                yield (jobs[job], *job.result())
        finally:
            pool.shutdown(cancel_futures=True)
