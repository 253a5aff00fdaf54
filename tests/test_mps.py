"""Apple's GPUs have no double precision: nothing of ours makes it on the device. No such machine was at hand.

The simulated device has it, as CUDA does, and writes down where it was used.
"""

import pytest
import torch

from lerobot_policy_quantile.core.decoders import PRESETS, fit_copula
from lerobot_policy_quantile.core.quantile_function import QuantileFunction
from lerobot_policy_quantile.processor_quantile import make_quantile_pre_post_processors
from tests.support.policies import STATS, make_config, make_policy, raw_batch
from tests.support.simulated_cuda import doubles, on_cuda, simulated_cuda

HEADS = [{"head": "quantile"}, {"head": "l1"}, {"head": "l2"}, {"head": "flow"}, {"query": "noise"}, {"query": "vlm"}]


@pytest.fixture(autouse=True)
def _device():
    with simulated_cuda():
        yield


def made_here() -> list[str]:
    """Lines that made doubles. LeRobot's embedding of the noise time asks for float32 where the device is MPS."""
    return sorted({line for line in doubles if "vla_utils" not in line})


def moved(**settings):
    policy = make_policy(**settings)
    policy.config.device = "cuda"
    before, after = make_quantile_pre_post_processors(make_config(device="cuda"), STATS)
    return policy.to("cuda"), before, after


def test_the_simulation_writes_doubles_down():
    torch.ones(2, device="cuda").double()
    assert len(made_here()) == 1


@pytest.mark.parametrize("settings", HEADS, ids=str)
def test_training_makes_no_doubles(settings):
    policy, before, _ = moved(**settings)
    optimizer = policy.config.get_optimizer_preset().build(policy.get_optim_params())
    loss, log = policy.train()(before(on_cuda(raw_batch())))
    loss.backward()
    optimizer.step()
    dict(log)
    assert made_here() == []


@pytest.mark.parametrize("fast", [False, True])
def test_decoding_makes_no_doubles(fast):
    policy, before, after = moved()
    policy.eval()
    if fast:
        policy.optimize()
    batch = before(on_cuda(raw_batch()))
    policy.use_copula(torch.eye(30))
    for name in PRESETS:
        decoders = [policy.choose_decoder(name)] * 4
        episodes = [policy.begin_episode(seed) for seed in range(4)]
        policy.predict_decoded(batch, after, episodes=episodes, decoders=decoders)
    assert made_here() == []


def test_fitting_a_copula_makes_no_doubles():
    law = QuantileFunction(moved()[0].head.levels, torch.randn(8, 10, 3, 21).sort(-1).values.to("cuda"))
    fit_copula(law, torch.randn(8, 10, 3).to("cuda"), torch.ones(8, 10, 3, dtype=torch.bool, device="cuda"))
    assert made_here() == []
