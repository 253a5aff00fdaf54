import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.core.losses import (
    absolute_loss,
    clean_target,
    drop_count,
    keep_mask,
    masked_mean,
    pinball,
    quantile_loss,
    squared_loss,
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# --- per element ---


def test_pinball_weighs_under_and_overprediction_by_the_level():
    """rho_0.9(2) = 0.9 * 2; rho_0.9(-2) = (0.9 - 1) * -2 = 0.2."""
    torch.testing.assert_close(pinball(torch.tensor([2.0, -2.0, 0.0]), 0.9), torch.tensor([1.8, 0.2, 0.0]))


def test_pinball_minimiser_is_the_empirical_quantile():
    """On 1..100 the 0.3 quantile is 30: there and nowhere better is the summed loss least."""
    data = torch.arange(1.0, 101.0)
    candidates = torch.arange(0.0, 101.0, 0.5)
    loss = pinball(data[None] - candidates[:, None], 0.3).sum(1)
    assert 30.0 <= candidates[loss.argmin()] <= 31.0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_quantile_loss_is_the_level_mean_of_pinball(dtype):
    quantiles = torch.randn(4, 3, 2, 21, dtype=dtype).sort(-1).values.requires_grad_()
    target = torch.randn(4, 3, 2, dtype=dtype)
    levels = quantile_levels(dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    wide = quantiles.to(levels.dtype)
    expected = pinball(target.to(levels.dtype)[..., None] - wide, levels).mean(-1)
    loss = quantile_loss(quantiles, target, levels)
    assert loss.shape == target.shape
    torch.testing.assert_close(loss, expected)
    weight = torch.rand_like(loss)
    ours, theirs = (torch.autograd.grad((x * weight).sum(), quantiles)[0] for x in (loss, expected))
    torch.testing.assert_close(ours, theirs)


def test_quantile_loss_passes_gradcheck():
    quantiles = torch.randn(3, 5, dtype=torch.float64).sort(-1).values.requires_grad_()
    target = torch.randn(3, dtype=torch.float64)
    levels = quantile_levels(5, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda q: quantile_loss(q, target, levels), (quantiles,))


def test_at_a_tie_the_gradient_is_the_middle_of_the_subgradient_interval():
    """Interval [-tau, 1 - tau], middle 1/2 - tau, divided by K = 3."""
    quantiles = torch.zeros(1, 3, requires_grad=True)
    levels = torch.tensor([0.2, 0.5, 0.8])
    quantile_loss(quantiles, torch.zeros(1), levels).sum().backward()
    torch.testing.assert_close(quantiles.grad, (0.5 - levels)[None] / 3)


def test_quantile_loss_keeps_its_precision_far_from_zero():
    """At 1e4 a residual of one float32 step (9.8e-4) must not drown in the action's size."""
    target = torch.tensor([1e4])
    step = torch.nextafter(target, torch.tensor([2e4])) - target
    quantiles = (target - step)[:, None].expand(1, 3).contiguous()
    levels = torch.tensor([0.2, 0.5, 0.8])
    torch.testing.assert_close(quantile_loss(quantiles, target, levels), step * 0.5)


def test_point_losses():
    prediction, target = torch.tensor([1.0, -1.0]), torch.tensor([3.0, 2.0])
    assert torch.equal(absolute_loss(prediction, target), torch.tensor([2.0, 3.0]))
    assert torch.equal(squared_loss(prediction, target), torch.tensor([4.0, 9.0]))


# --- label dropping ---


@pytest.mark.parametrize(
    ("n", "ratio", "expected"),
    [
        (0, 0.1, 0),
        (1, 0.1, 0),
        (2, 0.1, 1),
        (70, 0.1, 7),
        (71, 0.1, 8),
        (210, 0.1, 21),
        (70, 0.1 * 3, 21),  # floating point: 21.000000000000004, ceiling 22
        (25, 0.28, 7),  # floating point: 7.000000000000001, ceiling 8
        (3, 1 / 3, 1),
        (70, 0.0, 0),
        (5, 0.99, 4),  # at least one label stays
        (70, 1.0, 70),  # except at r = 1, where all go
        (1, 1.0, 1),
        (0, 1.0, 0),
    ],
)
def test_drop_count_is_exact(n, ratio, expected):
    assert drop_count(torch.tensor(n), ratio) == expected


@given(n=st.integers(0, 5000), tenths=st.integers(0, 9))
def test_drop_count_matches_integer_arithmetic(n, tenths):
    assert drop_count(torch.tensor(n), tenths / 10) == min(-(-tenths * n // 10), max(n - 1, 0))


@given(data=st.data(), ratio=st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9, 1.0]), seed=st.integers(0, 1000))
def test_keep_mask_drops_the_exact_number_of_valid_labels_only(data, ratio, seed):
    rows = st.lists(st.lists(st.booleans(), min_size=12, max_size=12), min_size=1, max_size=4)
    valid = torch.tensor(data.draw(rows)).view(-1, 4, 3)
    keep = keep_mask(valid, ratio, generator=generator(seed))
    assert not (keep & ~valid).any()
    n = valid.flatten(1).sum(1)
    assert torch.equal(keep.flatten(1).sum(1), n - drop_count(n, ratio))


def test_keep_mask_is_uniform_fresh_and_its_own_per_sample():
    """Of 10 labels 3 go: each stays in 7000 of 10000 draws, standard deviation 46."""
    g = generator()
    kept = keep_mask(torch.ones(10_000, 5, 2, dtype=torch.bool), 0.3, generator=g)
    counts = kept.sum(0).double()
    assert (counts - 7000).abs().max() < 5 * 46
    assert len(torch.unique(kept.flatten(1), dim=0)) == math.comb(10, 3)
    again = keep_mask(torch.ones(10_000, 5, 2, dtype=torch.bool), 0.3, generator=g)
    assert not torch.equal(kept, again)


# --- reduction ---


def test_masked_mean_follows_the_papers_normalisation():
    """Sample 1 keeps {1, 3}: 2. Sample 2 keeps {8}: 8. Sample 3 keeps none: 0. Mean 10 / 3."""
    loss = torch.tensor([[1.0, 2.0, 3.0], [7.0, 8.0, 9.0], [4.0, 5.0, 6.0]])
    keep = torch.tensor([[1, 0, 1], [0, 1, 0], [0, 0, 0]], dtype=torch.bool)
    torch.testing.assert_close(masked_mean(loss, keep), torch.tensor(10 / 3))
    assert torch.equal(masked_mean(loss, keep, reduction="none"), torch.tensor([2.0, 8.0, 0.0]))


@given(n_valid=st.integers(0, 7), ratio=st.sampled_from([0.0, 0.1, 0.4, 0.7]), seed=st.integers(0, 99))
def test_mean_over_all_masks_equals_the_unmasked_loss(n_valid, ratio, seed):
    """Over every subset of the size that `keep_mask` keeps, not over samples of it."""
    loss = torch.rand(1, 8, generator=generator(seed), dtype=torch.float64)
    valid = torch.arange(8)[None] < n_valid
    kept = n_valid - int(drop_count(torch.tensor(n_valid), ratio))
    masks = [torch.isin(torch.arange(8), torch.tensor(s))[None] for s in itertools.combinations(range(n_valid), kept)]
    mean = torch.stack([masked_mean(loss, mask) for mask in masks]).mean()
    torch.testing.assert_close(mean, masked_mean(loss, valid))


def test_dropping_everything_gives_zero_loss_and_zero_gradient_with_a_graph():
    prediction = torch.randn(2, 3, 4, requires_grad=True)
    valid = torch.ones(2, 3, 4, dtype=torch.bool)
    loss = masked_mean(absolute_loss(prediction, torch.zeros(2, 3, 4)), keep_mask(valid, 1.0, generator=generator()))
    loss.backward()
    assert loss == 0
    assert torch.equal(prediction.grad, torch.zeros_like(prediction))


def test_clean_target_ignores_what_padding_holds():
    target = torch.tensor([1.0, float("nan"), float("inf")])
    valid = torch.tensor([True, False, False])
    assert torch.equal(clean_target(target, valid), torch.tensor([1.0, 0.0, 0.0]))


# --- bad input ---


@pytest.mark.bad_input
def test_nan_in_a_valid_target_is_refused_and_located():
    target = torch.zeros(2, 3, 4)
    target[1, 2, 3] = float("nan")
    with pytest.raises(ValueError, match=r"target must not contain NaN; got 1 NaN of 24.*index \(1, 2, 3\)"):
        clean_target(target, torch.ones(2, 3, 4, dtype=torch.bool))


@pytest.mark.bad_input
@pytest.mark.parametrize("ratio", [-0.1, 1.1, float("nan")])
def test_a_drop_ratio_outside_zero_to_one_is_refused(ratio):
    with pytest.raises(ValueError, match=r"drop_ratio must lie in \[0.0, 1.0\]; got"):
        keep_mask(torch.ones(1, 2, dtype=torch.bool), ratio, generator=generator())


@pytest.mark.bad_input
def test_shape_mismatch_is_refused_with_both_shapes():
    a, b = torch.zeros(2, 3), torch.zeros(3, 2)
    for loss in (absolute_loss, squared_loss):
        with pytest.raises(ValueError, match=r"prediction must have shape \(3, 2\); got \(2, 3\)"):
            loss(a, b)
    with pytest.raises(ValueError, match=r"quantiles must have shape \(2, 3, 5\); got \(2, 3, 7\)"):
        quantile_loss(torch.zeros(2, 3, 7), a, quantile_levels(5))
    with pytest.raises(ValueError, match="keep must have shape"):
        masked_mean(a, b.bool())
    with pytest.raises(ValueError, match="valid must have shape"):
        clean_target(a, b.bool())
    with pytest.raises(ValueError, match="reduction must be one of mean, none; got 'sum'"):
        masked_mean(a, a.bool(), reduction="sum")
