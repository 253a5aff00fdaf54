"""Where policies compute: the best there is, or what the user names if it is there."""

import pytest
import torch

from lerobot_policy_quantile.cli.eval import choose_and_print_device
from lerobot_policy_quantile.policy.devices import choose_device


def machine(monkeypatch, *, cuda, mps):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


@pytest.mark.parametrize(
    ("cuda", "mps", "best"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu"), (True, False, "cuda")]
)
def test_a_gpu_comes_before_apples_and_the_processor_last(monkeypatch, cuda, mps, best):
    machine(monkeypatch, cuda=cuda, mps=mps)
    assert choose_device(None) == best
    assert choose_device("cpu") == "cpu"


def test_a_second_gpu_can_be_named(monkeypatch):
    machine(monkeypatch, cuda=True, mps=False)
    assert choose_device("cuda:1") == "cuda:1"


@pytest.mark.bad_input
@pytest.mark.parametrize("named", ["cuda", "gpu", "cpu:x", ""])
def test_what_is_not_there_is_refused_with_what_is(monkeypatch, named):
    machine(monkeypatch, cuda=False, mps=False)
    with pytest.raises(ValueError, match="--device must be one of those on this machine, cpu; got"):
        choose_device(named)


@pytest.mark.parametrize(
    ("source", "engine", "gpus", "device"),
    [
        ("expert:left", "local", "0", None),
        ("ws://gpu-box:8000", "local", "0", None),
        ("runs/policy", "local", "0", "cpu"),
        ("runs/policy", "ray", "0", "cpu"),
        ("runs/policy", "ray", "1", "cuda"),
    ],
)
def test_eval_says_where_policies_compute_if_any_do_so_here(monkeypatch, capsys, source, engine, gpus, device):
    machine(monkeypatch, cuda=False, mps=False)
    monkeypatch.setenv("QHEAD_GPUS_PER_REPLICA", gpus)
    assert choose_and_print_device(None, {"ours": source}, engine) == (device or "cpu")
    assert capsys.readouterr().err == ("" if device is None else f"policies compute on {device}\n")
