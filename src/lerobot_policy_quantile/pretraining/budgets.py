"""Amounts of data and training, by name."""

from dataclasses import dataclass, replace
from pathlib import Path

from lerobot_policy_quantile.pretraining.generate import DataBudget
from lerobot_policy_quantile.pretraining.student import CAMERA_SIZE, JOINT, SPOTTING
from lerobot_policy_quantile.pretraining.train import TrainingBudget
from lerobot_policy_quantile.util.names import require_choice


@dataclass(frozen=True)
class PretrainingBudget:
    """Data and training of one pretraining run."""

    data: DataBudget
    training: TrainingBudget

    def without_libero(self) -> "PretrainingBudget":
        """The embedded scene only."""
        if self.training.suite_share:
            raise ValueError("--no-libero must be left out with a budget of LIBERO's suites; choose --budget full")
        return replace(self, data=self.data.without_libero())

    def starting_from(self, folder: Path) -> "PretrainingBudget":
        """The same from a checkpoint's weights instead of random ones; where the data ask for it, it drives, too."""
        data = replace(self.data, driver=str(folder)) if self.data.driven_share else self.data
        return replace(self, data=data, training=replace(self.training, start=str(folder)))


def _with_suites(
    static_shards: int,
    play_shards: int,
    suite_shards: int,
    training: TrainingBudget,
    driven_share: float = 0.0,
    placed: int = 0,
) -> PretrainingBudget:
    """Shards of the embedded scene, and so many of each LIBERO suite."""
    return PretrainingBudget(
        DataBudget(
            static_shards=static_shards,
            scenes_per_shard=100,
            play_shards=play_shards,
            held_out_shards=4,
            camera_size=CAMERA_SIZE,
            suite_shards=suite_shards,
            suite_held_out_shards=1,
            driven_share=driven_share,
            suite_placed=placed,
        ),
        training,
    )


BUDGETS = {
    "full": PretrainingBudget(
        DataBudget(
            static_shards=80,
            scenes_per_shard=100,
            play_shards=36,
            held_out_shards=4,
            camera_size=CAMERA_SIZE,
            libero_static_shards=20,
            libero_play_shards=20,
            libero_held_out_shards=2,
        ),
        TrainingBudget(updates=4200, batch=48),
    ),
    "small": PretrainingBudget(
        DataBudget(1, 8, 1, 1, CAMERA_SIZE, play_steps=12),
        TrainingBudget(updates=6, batch=8, warmup=2, log_every=2, save_every=3),
    ),
    "suites": _with_suites(40, 18, 50, TrainingBudget(updates=9000, batch=48, recipe=JOINT, suite_share=0.75)),
    "suites_more": _with_suites(120, 36, 50, TrainingBudget(updates=6500, batch=48, recipe=SPOTTING, suite_share=0.6)),
    "suites_again": _with_suites(64, 20, 32, TrainingBudget(updates=7500, batch=48, recipe=SPOTTING, suite_share=0.65)),
    "suites_driven": _with_suites(
        64, 32, 28, TrainingBudget(updates=6000, batch=48, recipe=SPOTTING, suite_share=0.6), driven_share=0.75
    ),
    "suites_placed": _with_suites(
        64,
        20,
        28,
        TrainingBudget(updates=8000, batch=48, recipe=SPOTTING, suite_share=0.65),
        driven_share=0.5,
        placed=2,
    ),
    "suites_small": PretrainingBudget(
        DataBudget(
            1, 8, 1, 1, CAMERA_SIZE, 12, suite_shards=1, suite_held_out_shards=1, suite_episodes=1, suite_steps=12
        ),
        TrainingBudget(updates=6, batch=8, warmup=2, log_every=2, save_every=3, recipe=JOINT, suite_share=0.75),
    ),
}


def budget_named(name: str) -> PretrainingBudget:
    """The budget of that name."""
    require_choice("--budget", name, BUDGETS)
    return BUDGETS[name]
