"""The simulated device refuses what CUDA refuses, writes down what CUDA waits for, and computes like the CPU."""

import pytest
import torch

from tests.support.simulated_cuda import CudaTensor, DeviceMismatchError, simulated_cuda


@pytest.fixture
def waits():
    with simulated_cuda() as waits:
        yield waits


def here(*shape: int) -> torch.Tensor:
    return torch.ones(shape)


def there(*shape: int) -> torch.Tensor:
    return torch.ones(shape, device="cuda")


REFUSED = {
    "sum": lambda: there(3) + here(3),
    "product": lambda: here(2, 3) @ there(3, 2),
    "joined": lambda: torch.cat([there(3), here(3)]),
    "written": lambda: there(3).add_(here(3)),
    "number written": lambda: here().add_(there()),
    "indexed": lambda: here(3)[torch.zeros(1, dtype=torch.long, device="cuda")],
    "put": lambda: there(3).index_put_((torch.zeros(1, dtype=torch.long, device="cuda"),), here(1)),
    "layer": lambda: torch.nn.Linear(3, 2).to("cuda")(here(1, 3)),
    "generator": lambda: torch.rand(3, device="cuda", generator=torch.Generator()),
}
WAITED_FOR = {
    "number": lambda: float(there(3).sum()),
    "truth": lambda: bool(there(3).all()),
    "list": lambda: there(3).tolist(),
    "copy to the host": lambda: there(3).cpu(),
    "staged copy to the host": lambda: there(3).to("cpu", non_blocking=True),
    "written to the host": lambda: here(3).copy_(there(3)),
    "copy to the device": lambda: here(3).to("cuda"),
    "copy like another": lambda: here(3).to(there(1)),
    "numbers to the device": lambda: torch.tensor([1.0, 2.0], device="cuda"),
    "one number to the device": lambda: torch.as_tensor(1.0, device="cuda"),
    "new numbers": lambda: there(1).new_tensor([1.0]),
    "places": lambda: there(3).nonzero(),
    "index of the host": lambda: there(3)[[0, 1]],
}
NOT_WAITED_FOR = {
    "staged": lambda: here(3).to("cuda", non_blocking=True),
    "made there": lambda: torch.zeros(3, device="cuda") + torch.arange(3, device="cuda") + there(1).new_full((1,), 2.0),
    "converted": lambda: there(3).double().to(torch.float32).to("cuda"),
    "with a number of the host": lambda: there(3) * here(),
    "chosen there": lambda: there(3)[torch.zeros(2, dtype=torch.long, device="cuda")].where(there(2) > 0, 0.0),
}


@pytest.mark.parametrize("act", REFUSED.values(), ids=REFUSED)
def test_mixtures_are_refused(act, waits):
    with pytest.raises(DeviceMismatchError):
        act()


def test_numpy_is_refused_without_a_copy(waits):
    with pytest.raises(TypeError, match="can't convert cuda:0"):
        there(3).numpy()


@pytest.mark.parametrize("act", WAITED_FOR.values(), ids=WAITED_FOR)
def test_waits_are_written_down(act, waits):
    waits.clear()
    act()
    assert len(waits) == 1
    assert "test_simulated_cuda" in waits[0].where


def test_a_mask_as_index_waits(waits):
    there(3)[there(3) > 0]
    assert [wait.why for wait in waits] == ["index by a mask"]


@pytest.mark.parametrize("act", NOT_WAITED_FOR.values(), ids=NOT_WAITED_FOR)
def test_what_runs_there_does_not_wait(act, waits):
    assert isinstance(act(), CudaTensor)
    assert waits == []


def test_a_module_trains_there_like_here_and_comes_back(waits):
    torch.manual_seed(0)
    modules = [torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 1)) for _ in "ab"]
    modules[1].load_state_dict(modules[0].state_dict())
    weight = modules[1][0].weight
    modules[1].to("cuda")
    assert modules[1][0].weight is weight  # as on CUDA: optimisers keep what they hold
    assert weight.is_cuda
    for module, x in zip(
        modules, (torch.arange(6.0).view(2, 3), CudaTensor(torch.arange(6.0).view(2, 3))), strict=True
    ):
        module(x).square().sum().backward()
    torch.testing.assert_close(modules[1][0].weight.grad.cpu(), modules[0][0].weight.grad)
    modules[1].to("cpu")
    assert not modules[1][0].weight.is_cuda
    assert torch.equal(modules[1][0].weight, modules[0][0].weight)


def test_gradients_cross_the_devices(waits):
    x = here(3).requires_grad_()
    (x.to("cuda") * 2).sum().cpu().backward()
    assert x.grad.tolist() == [2.0] * 3


def test_autocast_lowers_products_and_not_norms(waits):
    linear, norm = torch.nn.Linear(3, 3).to("cuda"), torch.nn.LayerNorm(3).to("cuda")
    with torch.autocast("cuda", torch.bfloat16):
        product = linear(there(2, 3))
        assert product.dtype == torch.bfloat16
        assert norm(product).dtype == torch.float32
    assert linear(there(2, 3)).dtype == torch.float32


def test_nothing_is_left_behind():
    with simulated_cuda():
        pass
    assert torch.zeros(1).device.type == "cpu"
    assert torch.cuda.is_available.__name__ != "<lambda>"
