"""Where LeRobot 0.6.1 and what came after it differ: the policy answers to both."""

import copy
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard, ModelCardData
from lerobot.common import train_utils
from lerobot.policies.pretrained import PreTrainedPolicy
from torch import distributed
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from lerobot_policy_quantile.modeling_quantile import QuantilePolicy
from tests.support.policies import make_batch, make_policy


@pytest.fixture(scope="module")
def policy() -> QuantilePolicy:
    return make_policy()


@pytest.mark.parametrize("gathered", [False, True])
def test_saving_takes_a_gathered_state_or_none(policy, tmp_path, gathered):
    """0.6.1 passes `state_dict`, later versions nothing."""
    if gathered and not hasattr(PreTrainedPolicy, "generate_model_card"):
        pytest.skip("this LeRobot gathers by itself")
    policy._save_pretrained(tmp_path, **({"state_dict": policy.state_dict()} if gathered else {}))
    again = QuantilePolicy.from_pretrained(tmp_path)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in policy.state_dict().items())


def test_the_card_is_whole_where_lerobot_makes_it_from_the_configuration(policy, monkeypatch):
    def lerobots(model_cfg, cfg=None, dataset_meta=None):
        data = ModelCardData(license=model_cfg.license, tags=model_cfg.tags)
        return ModelCard(f"---\n{data.to_yaml()}\n---\n# {model_cfg.type}\n")

    monkeypatch.delattr(PreTrainedPolicy, "generate_model_card", raising=False)
    monkeypatch.setattr(train_utils, "generate_model_card", lerobots, raising=False)
    card = policy.generate_model_card("me/data", "quantile", "mit", ["toy"])
    assert (card.data.datasets, card.data.license, card.data.tags) == ("me/data", "mit", ["toy"])
    assert "| Head | quantile |" in card.text


def test_actions_in_the_queue_are_where_lerobot_drops_them(policy):
    """Later versions clear `_action_queue` when the instruction changes in the middle of an episode."""
    batch = make_batch(policy.config, 1)
    policy.reset(seeds=[0])
    policy.select_action(batch)
    assert len(policy._action_queue) == policy.config.n_action_steps - 1
    drop = getattr(policy, "drop_queued_actions", policy._action_queue.clear)
    drop()
    calls = policy.backbone.expert_calls
    policy.select_action(batch)
    assert policy.backbone.expert_calls == calls + 1


def test_sharded_in_the_units_that_lerobot_asks_for_the_loss_and_gradients_are_the_same(tmp_path: Path):
    """FSDP2 gathers a unit's weights when the unit is called: code that reached past it would meet sharded tensors."""
    whole = make_policy().train()
    shards = copy.deepcopy(whole)
    batch = make_batch(whole.config)
    distributed.init_process_group(
        "gloo", store=distributed.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1
    )
    try:
        units = [module for module in shards.modules() if type(module).__name__ in shards._fsdp_wrap_modules]
        assert {type(unit).__name__ for unit in units} == set(shards._fsdp_wrap_modules)
        mesh = distributed.init_device_mesh("cpu", (1,))
        for module in (*units, shards):
            fully_shard(module, mesh=mesh)
        assert all(isinstance(parameter, DTensor) for parameter in shards.parameters())
        losses = [model(batch)[0] for model in (whole, shards)]
        for loss in losses:
            loss.backward()
        assert torch.equal(losses[0], losses[1])
        sharded = dict(shards.named_parameters())
        for name, parameter in whole.named_parameters():
            if parameter.grad is not None:
                torch.testing.assert_close(sharded[name].grad.full_tensor(), parameter.grad)
    finally:
        distributed.destroy_process_group()
