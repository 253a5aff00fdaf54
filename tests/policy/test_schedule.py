"""One warm-up and cosine for training and pretraining; rates of finished runs are theirs to the bit."""

from math import cos, pi

import pytest
import torch

from lerobot_policy_quantile.policy.schedule import WarmupCosineConfig
from lerobot_policy_quantile.pretraining.budgets import BUDGETS
from lerobot_policy_quantile.pretraining.train import TrainingBudget


def policy_factor(step: int, warmup: int, total: int, final: float) -> float:
    """Of every published training run."""
    if step < warmup:
        return (step + 1) / (warmup + 1)
    progress = min((step - warmup) / max(1, total - warmup), 1.0)
    return final + (1 - final) * 0.5 * (1 + cos(pi * progress))


def base_rate(budget: TrainingBudget, update: int) -> float:
    """Of the shipped base."""
    if update < budget.warmup:
        return budget.rate * (update + 1) / budget.warmup
    share = (update - budget.warmup) / max(1, budget.updates - budget.warmup)
    return budget.rate * (budget.final_fraction + (1 - budget.final_fraction) * (1 + cos(pi * share)) / 2)


@pytest.mark.parametrize(("warmup", "total"), [(200, 6000), (200, 50), (4, 24), (0, 10), (1, 4)])
def test_training_rates_are_those_of_earlier_runs(warmup, total):
    peaks = (2.5e-5, 1e-4, 2e-3)
    optimizer = torch.optim.SGD([{"params": [torch.zeros(1, requires_grad=True)], "lr": peak} for peak in peaks])
    schedule = WarmupCosineConfig(warmup, 0.1).build(optimizer, total)
    for step in range(total):
        assert schedule.get_last_lr() == [peak * policy_factor(step, warmup, total, 0.1) for peak in peaks]
        optimizer.step()
        schedule.step()


@pytest.mark.parametrize("budget", [*(b.training for b in BUDGETS.values()), TrainingBudget(updates=20, warmup=0)])
def test_pretraining_rates_are_those_of_the_shipped_base(budget):
    found = [budget.rate_at(update) for update in range(budget.updates)]
    assert found == [base_rate(budget, update) for update in range(budget.updates)]
