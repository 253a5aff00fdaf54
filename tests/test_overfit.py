"""Tiny on twenty episodes of a two-mode task: the quantile head is calibrated, the L2 head stands between."""

from typing import Any

import pytest
import torch
from lerobot.datasets import LeRobotDataset
from lerobot.policies.factory import make_policy
from torch import Tensor
from torch.utils.data import default_collate

from lerobot_policy_quantile.configuration_quantile import QuantileConfig
from lerobot_policy_quantile.modeling_quantile import QuantilePolicy
from lerobot_policy_quantile.processor_quantile import make_quantile_pre_post_processors
from tests.support.datasets import make_dataset

pytestmark = pytest.mark.slow

BATCH = 24


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> LeRobotDataset:
    """Ten episodes go left, ten right; the observation is the same for both."""
    root = tmp_path_factory.mktemp("two_modes") / "data"
    make_dataset(root, episodes=20, frames=8, blind=True)
    return LeRobotDataset("tests/toy", root=root, delta_timestamps={"action": [0.0, 0.1]})


def fit(dataset: LeRobotDataset, head: str, updates: int) -> tuple[QuantilePolicy, dict[str, Tensor], Any]:
    """Train on all frames, each read once by the frozen VLM; returns the policy, its training data and the way back to
    action units.
    """
    torch.manual_seed(0)
    sizes = {"backbone": "tiny", "device": "cpu", "chunk_size": 2, "n_action_steps": 2}
    config = QuantileConfig(**sizes, head=head, drop_ratio=0.1, optimizer_lr=2e-3, prefix_cache="memory")
    policy = make_policy(config, ds_meta=dataset.meta).train()
    before, after = make_quantile_pre_post_processors(config, dataset.meta.stats)
    data = before(default_collate([dataset[i] for i in range(len(dataset))]))
    data = {key: value for key, value in data.items() if isinstance(value, Tensor)}
    optimizer = config.get_optimizer_preset().build(policy.get_optim_params())
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, updates)
    draw = torch.Generator().manual_seed(0)
    for _ in range(updates):
        rows = torch.randint(len(dataset), (BATCH,), generator=draw)
        policy({key: value[rows] for key, value in data.items()})[0].backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    return policy.eval(), data, after


def test_quantiles_are_calibrated_and_span_both_modes(dataset):
    policy, data, after = fit(dataset, "quantile", updates=250)
    with torch.no_grad():
        _, log = policy(data)
    assert log["coverage_80"] == pytest.approx(0.8, abs=0.05)
    quantiles = policy.predict_distribution(data, after).quantiles
    sideways = quantiles[:, 0, 0]  # first step, the dimension with two modes
    assert (sideways[:, 2] < -0.7).all()  # level 0.12 among those that go left, near -1
    assert (sideways[:, -3] > 0.7).all()  # level 0.88 among those that go right, near +1


def test_the_l2_head_lands_between_the_modes(dataset):
    policy, data, after = fit(dataset, "l2", updates=100)
    sideways = policy.predict_distribution(data, after).actions[:, 0, 0]
    assert sideways.abs().max() < 0.5
