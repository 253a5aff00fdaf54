"""Data generation in shards: each is a function of the seed and its number, so a stopped run goes on where it was."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lerobot_policy_quantile.pretraining.samples import Samples
from lerobot_policy_quantile.scenes.libero.kinds import KINDS
from lerobot_policy_quantile.util.pool import WorkerPool

if TYPE_CHECKING:
    from lerobot_policy_quantile.scenes.staging import Stage

STREAM = 5_150_000
"""First number of every random key of pretraining data: the stored initial states of the scenes use others."""

SPLITS = {"train": 1, "held_out": 2}
EMBEDDED, LIBERO = "embedded", "libero"


@dataclass(frozen=True)
class Shard:
    """One file of samples: so many static scenes, or some episodes of play: in the embedded scene one per thing, in a
    LIBERO task its own thing and another one.
    """

    split: str
    kind: str  # static | play
    number: int
    scenes: int = 0  # static only
    steps: int = 0  # play only: where an episode is cut off
    scene: str = EMBEDDED

    @property
    def file(self) -> str:
        """Its name inside the data folder."""
        scene = "" if self.scene == EMBEDDED else f"{self.scene}-"
        return f"{self.split}-{scene}{self.kind}-{self.number:04d}.npz"

    @property
    def task(self) -> int | None:
        """LIBERO tasks take turns."""
        return None if self.scene == EMBEDDED else self.number % len(KINDS)

    def generator(self, seed: int) -> np.random.Generator:
        """Everything random in it."""
        scene = [] if self.scene == EMBEDDED else [1]
        return np.random.default_rng([STREAM, seed, SPLITS[self.split], self.kind == "play", self.number, *scene])


@dataclass(frozen=True)
class DataBudget:
    """How much data is made."""

    static_shards: int
    scenes_per_shard: int
    play_shards: int
    held_out_shards: int
    camera_size: int
    play_steps: int = 360
    libero_static_shards: int = 0
    libero_play_shards: int = 0
    libero_held_out_shards: int = 0

    def without_libero(self) -> "DataBudget":
        """The embedded scene only, for a machine without LIBERO's assets."""
        return replace(self, libero_static_shards=0, libero_play_shards=0, libero_held_out_shards=0)

    def shards(self) -> list[Shard]:
        """All of them, held-out first, then all sorts evenly mixed."""
        counts = {
            (EMBEDDED, "static"): self.static_shards,
            (EMBEDDED, "play"): self.play_shards,
            (LIBERO, "static"): self.libero_static_shards,
            (LIBERO, "play"): self.libero_play_shards,
        }
        held_out = {EMBEDDED: self.held_out_shards, LIBERO: self.libero_held_out_shards}
        size = self.scenes_per_shard
        first = [
            Shard("held_out", "static", n, size, scene=scene) for scene in held_out for n in range(held_out[scene])
        ]
        places = [((n + 0.5) / count, n, *sort) for sort, count in counts.items() for n in range(count)]
        amount = {"static": {"scenes": size}, "play": {"steps": self.play_steps}}
        return first + [Shard("train", kind, n, scene=scene, **amount[kind]) for _, n, scene, kind in sorted(places)]


_stages: dict[int | None, "Stage"] = {}


def _stage(camera_size: int, task: int | None) -> "Stage":
    """A process keeps one embedded stage and that of one LIBERO task, built when first needed."""
    if task in _stages:
        return _stages[task]
    if task is None:
        from lerobot_policy_quantile.scenes.staging import EmbeddedStage

        _stages[None] = EmbeddedStage(camera_size)
    else:
        from lerobot_policy_quantile.scenes.libero.staging import LiberoStage

        for other in [number for number in _stages if number is not None]:
            _stages.pop(other).close()
        _stages[task] = LiberoStage(task, camera_size)
    return _stages[task]


def make_shard(shard: Shard, folder: Path, seed: int, camera_size: int) -> tuple[int, int]:
    """Write one shard; the number of samples, and of episodes that ended in the basket."""
    from lerobot_policy_quantile.pretraining.scenes_play import play_samples
    from lerobot_policy_quantile.pretraining.scenes_static import static_samples

    stage, rng = _stage(camera_size, shard.task), shard.generator(seed)
    if shard.kind == "static":
        samples, solved = static_samples(stage, rng, shard.scenes), 0
    else:
        episodes = [play_samples(stage, rng, kind, shard.steps) for kind in _played(stage, shard.task, rng)]
        samples, solved = Samples.join([part for part, _ in episodes]), sum(good for _, good in episodes)
    samples.save(folder / shard.file)
    return len(samples), solved


def _played(stage: "Stage", task: int | None, rng: np.random.Generator) -> list[str]:
    if task is None:
        return list(stage.kinds)
    own = KINDS[task]
    return [own, str(rng.choice([kind for kind in stage.kinds if kind != own]))]


def generate(budget: DataBudget, folder: Path, seed: int, workers: int) -> Iterator[tuple[Shard, int, int]]:
    """Make every shard that is missing; yields each when it is done, with its samples and its solved episodes."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [shard for shard in budget.shards() if not (folder / shard.file).exists()]
    work = [(shard, folder, seed, budget.camera_size) for shard in missing]
    with WorkerPool(workers) as pool:
        for number, (count, solved) in pool.each(make_shard, work):
            yield missing[number], count, solved
