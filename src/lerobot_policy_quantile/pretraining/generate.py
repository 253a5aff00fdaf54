"""Data generation in shards: each is a function of the seed and its number, so a stopped run goes on where it was."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lerobot_policy_quantile.pretraining.samples import Samples
from lerobot_policy_quantile.pretraining.suite_samples import SUITES, SuiteSamples
from lerobot_policy_quantile.scenes.libero.kinds import KINDS
from lerobot_policy_quantile.util.pool import WorkerPool

if TYPE_CHECKING:
    from lerobot_policy_quantile.pretraining.apprentice import Learner
    from lerobot_policy_quantile.scenes.libero.suites import LiberoScene
    from lerobot_policy_quantile.scenes.staging import Stage

STREAM = 5_150_000
"""First number of every random key of pretraining: the stored initial states of the scenes use others."""

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
    driver: str | None = None  # play only: folder of a policy that drives now and then
    driven_share: float = 0.0  # of the episodes

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
class SuiteShard:
    """One file of samples of a LIBERO suite: some episodes of one task. Tasks take turns."""

    split: str
    scene: str
    number: int
    episodes: int
    steps: int | None = None  # where an episode is cut off; None: the benchmark's limit
    driver: str | None = None  # folder of a policy that drives now and then
    driven_share: float = 0.0  # of the episodes
    placed: int = 0  # samples of a placed hand for each of an open hand on its way to a thing
    kind: str = "play"

    @property
    def file(self) -> str:
        """Its name inside the data folder."""
        return f"{suite_files(self.split)}-{self.scene}-{self.number:04d}.npz"

    @property
    def task(self) -> int:
        """Every suite has ten."""
        return self.number % 10

    def generator(self, seed: int) -> np.random.Generator:
        """Everything random in it."""
        suite = SUITES.index(self.scene)
        return np.random.default_rng([STREAM, seed, SPLITS[self.split], 2, self.number, 2 + suite])


def suite_files(split: str) -> str:
    """How the names of a split's suite shards begin."""
    return f"suites-{split}"


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
    suite_shards: int = 0  # per suite, as are the next
    suite_held_out_shards: int = 0
    suite_episodes: int = 4  # per shard
    suite_steps: int | None = None
    suite_placed: int = 0  # samples of a placed hand in training episodes, see `SuiteShard`
    driven_share: float = 0.0  # of training episodes in the suites and the embedded scene: `driver` drives now and then
    driver: str | None = None  # folder of the checkpoint to go on from

    def without_libero(self) -> "DataBudget":
        """The embedded scene only, for a machine without LIBERO's assets."""
        return replace(
            self,
            libero_static_shards=0,
            libero_play_shards=0,
            libero_held_out_shards=0,
            suite_shards=0,
            suite_held_out_shards=0,
        )

    def shards(self) -> list[Shard | SuiteShard]:
        """All of them, held-out first, then all sorts evenly mixed."""
        counts = {
            (EMBEDDED, "static"): self.static_shards,
            (EMBEDDED, "play"): self.play_shards,
            (LIBERO, "static"): self.libero_static_shards,
            (LIBERO, "play"): self.libero_play_shards,
        }
        counts |= {(suite, "play"): self.suite_shards for suite in SUITES}
        held_out = {EMBEDDED: self.held_out_shards, LIBERO: self.libero_held_out_shards}
        size = self.scenes_per_shard
        first: list[Shard | SuiteShard] = [
            Shard("held_out", "static", n, size, scene=scene) for scene in held_out for n in range(held_out[scene])
        ]
        first += [self._of_suite("held_out", suite, n) for n in range(self.suite_held_out_shards) for suite in SUITES]
        places = [((n + 0.5) / count, n, *sort) for sort, count in counts.items() for n in range(count)]
        return first + [self._for_training(scene, kind, number) for _, number, scene, kind in sorted(places)]

    def _for_training(self, scene: str, kind: str, number: int) -> Shard | SuiteShard:
        shard = Shard("train", kind, number, scene=scene)
        if scene in SUITES:
            return self._driven(replace(self._of_suite("train", scene, number), placed=self.suite_placed))
        if kind == "static":
            return replace(shard, scenes=self.scenes_per_shard)
        shard = replace(shard, steps=self.play_steps)
        return self._driven(shard) if scene == EMBEDDED else shard

    def _of_suite(self, split: str, suite: str, number: int) -> SuiteShard:
        return SuiteShard(split, suite, number, self.suite_episodes, self.suite_steps)

    def _driven[Sort: (Shard, SuiteShard)](self, shard: Sort) -> Sort:
        if not self.driven_share:
            return shard
        if self.driver is None:
            raise ValueError("--start must name the checkpoint that drives with this --budget; got none")
        return replace(shard, driver=self.driver, driven_share=self.driven_share)


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


_suites: dict[str, "LiberoScene"] = {}


def _suite(camera_size: int, name: str) -> "LiberoScene":
    """A process keeps one suite's scene."""
    if name not in _suites:
        from lerobot_policy_quantile.scenes.libero.suites import LiberoScene

        for other in list(_suites):
            _suites.pop(other).close()
        _suites[name] = LiberoScene(name, obstacle=False, camera_size=camera_size)
    return _suites[name]


def make_shard(shard: Shard | SuiteShard, folder: Path, seed: int, camera_size: int) -> tuple[int, int]:
    """Write one shard; the number of samples, and of solved episodes."""
    if isinstance(shard, SuiteShard):
        return _make_suite_shard(shard, folder, seed, camera_size)
    from lerobot_policy_quantile.pretraining.scenes_play import play_samples
    from lerobot_policy_quantile.pretraining.scenes_static import static_samples

    stage, rng = _stage(camera_size, shard.task), shard.generator(seed)
    if shard.kind == "static":
        samples, solved = static_samples(stage, rng, shard.scenes), 0
    else:
        kinds, learner = _played(stage, shard.task, rng), _learner(shard)
        episodes = [play_samples(stage, rng, kind, shard.steps, learner) for kind in kinds]
        samples, solved = Samples.join([part for part, _ in episodes]), sum(good for _, good in episodes)
    samples.save(folder / shard.file)
    return len(samples), solved


def _make_suite_shard(shard: SuiteShard, folder: Path, seed: int, camera_size: int) -> tuple[int, int]:
    from lerobot_policy_quantile.pretraining.suite_play import suite_play

    scene, rng, learner = _suite(camera_size, shard.scene), shard.generator(seed), _learner(shard)
    episodes = [suite_play(scene, shard.task, rng, shard.steps, learner, shard.placed) for _ in range(shard.episodes)]
    samples = SuiteSamples.join([part for part, _ in episodes])
    samples.save(folder / shard.file)
    return len(samples), sum(solved for _, solved in episodes)


def _learner(shard: Shard | SuiteShard) -> "Learner | None":
    if shard.driver is None:
        return None
    from lerobot_policy_quantile.pretraining.apprentice import apprentice_policy

    return apprentice_policy(shard.driver), shard.driven_share


def _played(stage: "Stage", task: int | None, rng: np.random.Generator) -> list[str]:
    if task is None:
        return list(stage.kinds)
    own = KINDS[task]
    return [own, str(rng.choice([kind for kind in stage.kinds if kind != own]))]


def generate(
    budget: DataBudget, folder: Path, seed: int, workers: int
) -> Iterator[tuple[Shard | SuiteShard, int, int]]:
    """Make every shard that is missing; yields each when it is done, with its samples and its solved episodes."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [shard for shard in budget.shards() if not (folder / shard.file).exists()]
    work = [(shard, folder, seed, budget.camera_size) for shard in missing]
    with WorkerPool(workers) as pool:
        for number, (count, solved) in pool.each(make_shard, work):
            yield missing[number], count, solved
