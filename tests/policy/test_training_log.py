"""A log that is read when it is used behaves like the dictionary it stands for, and is read once."""

import copy
import json
import pickle

import pytest
import torch

from lerobot_policy_quantile.policy.training_log import TrainingLog
from tests.support.policies import make_batch, make_policy
from tests.support.simulated_cuda import CudaTensor, on_cuda, simulated_cuda

NUMBERS = {"loss": 0.5, "coverage_80": 0.75}
USES = {
    "item": lambda log: {name: log[name] for name in NUMBERS},
    "get": lambda log: {name: log.get(name) for name in NUMBERS},
    "items": lambda log: dict(log.items()),
    "values": lambda log: dict(zip(log, log.values(), strict=True)),
    "dict": dict,
    "spread": lambda log: {**log},
    "update": lambda log: {"loss": 9.0} | log,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda log: pickle.loads(pickle.dumps(log)),
    "json": lambda log: json.loads(json.dumps(log)),
    "repr": lambda log: json.loads(repr(log).replace("'", '"')),
    "accelerate": lambda log: type(log)(dict(log.items())),  # rebuilds what a model returns
}


def on_device(nans: float = 0.0) -> TrainingLog:
    pending = CudaTensor(torch.tensor([*NUMBERS.values(), nans]))
    return TrainingLog(dict.fromkeys(NUMBERS, float("nan")), pending=pending)


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_every_use_reads_once(use):
    with simulated_cuda() as waits:
        log = on_device()
        assert len(log) == 2
        assert "loss" in log
        assert list(log) == list(NUMBERS)
        assert waits == []
        assert use(log) == NUMBERS
        assert log == NUMBERS
        assert len(waits) == 1


def test_what_is_added_stays():
    """LeRobot adds the weights of samples to it."""
    with simulated_cuda():
        log = on_device()
        log["sample_weight_mean"] = 1.0
        assert log == NUMBERS | {"sample_weight_mean": 1.0}


def test_nan_is_refused_once_and_then_shown():
    with simulated_cuda():
        log = on_device(nans=3)
        with pytest.raises(ValueError, match="prediction must not contain NaN; got 3 NaN in loss and features"):
            log.items()
        assert log == NUMBERS


def test_on_the_cpu_nothing_is_pending():
    with pytest.raises(ValueError, match="prediction must not contain NaN"):
        TrainingLog({"loss": 0.0}, pending=torch.tensor([1.0, 1.0]))


def test_a_copied_policy_goes_on():
    """As an average of weights is kept: the log goes along."""
    policy = make_policy().train()
    with simulated_cuda():
        policy.to("cuda")
        policy(on_cuda(make_batch(policy.config)))
        twin = copy.deepcopy(policy)
        assert twin._last_log == policy._last_log
        twin(on_cuda(make_batch(make_policy().config)))
