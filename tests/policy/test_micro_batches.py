"""A batch in pieces: the same update from a fraction of the memory."""

from contextlib import nullcontext

import pytest
import torch
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel

from lerobot_policy_quantile.backbone.live_bytes import LiveBytes
from tests.support.policies import make_batch, make_policy
from tests.support.simulated_cuda import CudaTensor, on_cuda, simulated_cuda

ROWS = 7
UNWATCHED = nullcontext()


def update(micro_batch, *, rows=ROWS, wrap=None, watch=UNWATCHED, **settings):
    """Loss, log and gradients of one training batch, some of its steps padding."""
    policy = make_policy(micro_batch=micro_batch, **settings)
    policy.noise_key[0], policy.noise_key[1] = 11, 5
    batch = make_batch(policy.config, rows)
    batch["action_is_pad"][1, 4:] = True
    policy.train()
    model = wrap(policy) if wrap else policy
    with watch:
        loss, log = model(batch)
        (2 * loss).backward()  # whatever a trainer multiplies by
    return policy, loss, log, {name: p.grad for name, p in policy.named_parameters()}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"head": "l1"},
        {"supervise": "median"},
        {"gradient_checkpointing": True},
        {"freeze_vlm": False, "random_vlm": False},
        {"query": "vlm"},
    ],
    ids=str,
)
def test_pieces_give_the_gradient_of_the_whole_batch(settings):
    whole, loss, log, expected = update(None, **settings)
    pieces, same_loss, same_log, found = update(3, **settings)
    torch.testing.assert_close(same_loss, loss)
    assert same_log["loss"] == pytest.approx(log["loss"])
    assert same_log == pytest.approx(log, abs=0.01), "by rows, of which some have more padding than others"
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert (found[name] is None) == (gradient is None), name
        if gradient is not None:
            torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-6, msg=name)
    assert torch.equal(pieces.noise_key, whole.noise_key), "all pieces are one forward"


def test_half_precision_differs_by_its_rounding_only():
    *_, expected = update(None, dtype="bfloat16")
    *_, found = update(3, dtype="bfloat16")
    for name, gradient in expected.items():
        if gradient is not None and gradient.norm() > 0:
            assert (found[name] - gradient).norm() < 0.05 * gradient.norm(), name


def test_pieces_hold_a_fraction_of_the_activations():
    def peak(micro_batch):
        live = LiveBytes()
        update(micro_batch, rows=32, watch=live)
        return live.most

    assert peak(2) < 0.4 * peak(None)


def test_processes_average_the_gradients_of_pieces_as_they_do_of_batches(tmp_path):
    init_process_group("gloo", init_method=f"file://{tmp_path / 'rendezvous'}", rank=0, world_size=1)
    try:
        *_, expected = update(None)
        *_, found = update(3, wrap=lambda policy: DistributedDataParallel(policy, find_unused_parameters=True))
    finally:
        destroy_process_group()
    for name, gradient in expected.items():
        if gradient is not None:
            torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-6, msg=name)


def test_evaluation_and_batches_that_fit_are_not_split():
    policy = make_policy(micro_batch=ROWS)
    loss, _ = policy.train()(make_batch(policy.config, ROWS))
    assert "Deliver" not in type(loss.grad_fn).__name__
    policy.config.micro_batch = 3
    loss, _ = policy.train()(make_batch(policy.config, ROWS))
    assert "Deliver" in type(loss.grad_fn).__name__
    policy.eval()
    assert "Deliver" not in str(policy(make_batch(policy.config, ROWS))[0].grad_fn)


@pytest.mark.bad_input
def test_weights_per_sample_and_pieces_of_nothing_are_refused():
    policy = make_policy(micro_batch=3)
    with pytest.raises(ValueError, match="reduction must be 'mean' with micro_batch = 3"):
        policy.train()(make_batch(policy.config, ROWS), reduction="none")
    with pytest.raises(ValueError, match="micro_batch must be at least 1, or null; got 0"):
        make_policy(micro_batch=0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_pieces_on_a_gpu_mix_with_nothing_of_the_host(dtype):
    """On the simulated device, which refuses it; the host waits as often as for a whole batch."""
    *_, expected = update(None, rows=4, dtype=dtype)
    with simulated_cuda() as waits:
        policy = make_policy(micro_batch=2, dtype=dtype)
        policy.noise_key[0], policy.noise_key[1] = 11, 5
        policy.config.device = "cuda"
        batch = make_batch(policy.config, 4)
        batch["action_is_pad"][1, 4:] = True
        policy.to("cuda").train()
        moved = on_cuda(batch)
        waits.clear()
        loss, log = policy(moved)
        (2 * loss).backward()
        assert isinstance(loss, CudaTensor)
        assert dict(log).keys() >= {"loss"}
        assert len(waits) <= 2, waits
        found = {name: p.grad.cpu() for name, p in policy.named_parameters() if p.grad is not None}
    for name, gradient in expected.items():
        if gradient is not None and gradient.norm() > 0:
            assert (found[name] - gradient).norm() < (1e-3 if dtype == "float32" else 0.1) * gradient.norm(), name
