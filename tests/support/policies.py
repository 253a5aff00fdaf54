"""Policies and batches without a dataset on disk."""

from typing import Any

import torch
from lerobot.configs import FeatureType, PolicyFeature
from torch import Tensor

from lerobot_policy_quantile.configuration_quantile import QuantileConfig
from lerobot_policy_quantile.modeling_quantile import QuantilePolicy
from lerobot_policy_quantile.processor_quantile import make_quantile_pre_post_processors
from tests.support.datasets import ACTION_DIM, CAMERA, STATE_DIM, TASK

STATS = {
    "observation.state": {"q01": torch.tensor([-1.0, 0.0]), "q99": torch.tensor([1.0, 1.0])},
    "action": {"q01": torch.tensor([-2.0, -1.0, 0.0]), "q99": torch.tensor([2.0, 1.0, 1.0])},
}


def make_config(**overrides: Any) -> QuantileConfig:
    """A tiny policy for the toy task, its features already known, its weights random."""
    features = {
        "input_features": {
            "observation.state": PolicyFeature(FeatureType.STATE, (STATE_DIM,)),
            CAMERA: PolicyFeature(FeatureType.VISUAL, (3, 32, 32)),
        },
        "output_features": {"action": PolicyFeature(FeatureType.ACTION, (ACTION_DIM,))},
    }
    settings = {"backbone": "tiny", "backbone_weights": "none", "random_vlm": True, "device": "cpu"}
    return QuantileConfig(**{**settings, "push_to_hub": False, **features, **overrides})


def make_policy(seed: int = 0, **overrides: Any) -> QuantilePolicy:
    torch.manual_seed(seed)
    return QuantilePolicy(make_config(**overrides))


def raw_batch(rows: int = 4, *, seed: int = 0, chunk_size: int = 10) -> dict[str, Any]:
    """A batch as LeRobot's data loader gives it, before any processor."""
    draw = torch.Generator().manual_seed(seed)
    return {
        "observation.state": torch.rand(rows, STATE_DIM, generator=draw) * 2 - 1,
        CAMERA: torch.rand(rows, 3, 32, 32, generator=draw),
        "action": torch.randn(rows, chunk_size, ACTION_DIM, generator=draw),
        "action_is_pad": torch.zeros(rows, chunk_size, dtype=torch.bool),
        "index": torch.arange(rows) + 100,
        "task": [TASK] * rows,
    }


def make_batch(config: QuantileConfig, rows: int = 4, *, seed: int = 0) -> dict[str, Tensor]:
    """The same batch as the policy takes it."""
    before, _ = make_quantile_pre_post_processors(config, STATS)
    batch: dict[str, Tensor] = before(raw_batch(rows, seed=seed, chunk_size=config.chunk_size))
    return batch
