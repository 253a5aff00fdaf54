"""How much of everything: one name for data and training together."""

from dataclasses import dataclass

from lerobot_policy_quantile.pretraining.generate import DataBudget
from lerobot_policy_quantile.pretraining.student import CAMERA_SIZE
from lerobot_policy_quantile.pretraining.train import TrainingBudget


@dataclass(frozen=True)
class Budget:
    """Data and training of one pretraining run."""

    data: DataBudget
    training: TrainingBudget


BUDGETS = {
    "full": Budget(DataBudget(80, 100, 24, 4, CAMERA_SIZE), TrainingBudget(updates=3000, batch=48)),
    "small": Budget(
        DataBudget(1, 8, 1, 1, CAMERA_SIZE, play_steps=12),
        TrainingBudget(updates=6, batch=8, warmup=2, log_every=2, save_every=3),
    ),
}


def budget_named(name: str) -> Budget:
    """The budget of that name."""
    if name not in BUDGETS:
        raise ValueError(f"--budget must be one of {', '.join(BUDGETS)}; got {name!r}")
    return BUDGETS[name]
