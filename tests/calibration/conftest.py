"""A toy dataset and policies of every head that fit it, made once."""

import pytest
from lerobot.policies.factory import make_pre_post_processors

from tests.support.datasets import make_dataset
from tests.support.policies import STATS, make_policy


def save_policy(folder, **overrides):
    policy = make_policy(**overrides)
    policy.save_pretrained(folder)
    for pipeline in make_pre_post_processors(policy.config, dataset_stats=STATS):
        pipeline.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def toy_set(tmp_path_factory):
    """Four episodes of twelve frames."""
    root = tmp_path_factory.mktemp("toy") / "set"
    make_dataset(root, episodes=4, frames=12)
    return root


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """Head -> folder of an untrained policy with chunks of four."""
    root = tmp_path_factory.mktemp("policies")
    heads = {"quantile": {}, "l1": {}, "flow": {}, "median": {"head": "quantile", "supervise": "median"}}
    return {
        name: save_policy(root / name, chunk_size=4, n_action_steps=2, **{"head": name, **settings})
        for name, settings in heads.items()
    }
