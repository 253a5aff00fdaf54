import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from lerobot_policy_quantile.core.ordered import mirror_gaps, ordered_quantiles, positive_gaps, running_sum_

LARGEST_BFLOAT16 = float(torch.finfo(torch.bfloat16).max)
finite = st.floats(-LARGEST_BFLOAT16, LARGEST_BFLOAT16, width=32)


def test_a_raw_zero_gives_the_initial_gap():
    """delta0 / ln 2 * softplus(0) = delta0 / ln 2 * ln 2 = delta0."""
    torch.testing.assert_close(positive_gaps(torch.zeros(4)), torch.full((4,), 0.02))
    torch.testing.assert_close(positive_gaps(torch.zeros(4), delta0=0.3), torch.full((4,), 0.3))


def test_gaps_accumulate_outwards_from_the_median():
    """m = 1, gaps (left outermost first) 4 3 | 1 2: q = 1-3-4, 1-3, 1, 1+1, 1+1+2."""
    quantiles = ordered_quantiles(torch.tensor([1.0]), torch.tensor([[4.0, 3.0, 1.0, 2.0]]))
    torch.testing.assert_close(quantiles, torch.tensor([[-6.0, -2.0, 1.0, 2.0, 4.0]]))


def test_symmetric_quantiles_have_equal_gaps_on_both_sides():
    """Bit for bit, over many small draws: vectorised softplus rounds the last few elements of a tensor differently."""
    for _ in range(100):
        gaps = mirror_gaps(positive_gaps(torch.randn(3, 5)))
        quantiles = ordered_quantiles(torch.zeros(3), gaps)
        assert torch.equal(quantiles, -quantiles.flip(-1))


@pytest.mark.parametrize("sequential", [True, False])
@given(gaps=st.lists(st.floats(0, 1e6, width=32), min_size=10, max_size=10))
def test_running_sums_never_step_back(sequential, gaps):
    """Both ways of forming them, for gaps of very different size."""
    gaps = torch.tensor([gaps])
    sums = running_sum_(gaps.clone(), sequential=sequential)
    assert (sums.diff() >= 0).all()
    torch.testing.assert_close(sums, gaps.double().cumsum(-1).float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@given(median=finite, raw=st.lists(finite, min_size=20, max_size=20))
def test_quantiles_are_ordered_for_any_finite_raw_output(dtype, median, raw):
    median = torch.tensor([median], dtype=dtype)
    quantiles = ordered_quantiles(median, positive_gaps(torch.tensor([raw], dtype=dtype)))
    assert quantiles.dtype == dtype
    assert not quantiles.isnan().any()
    assert torch.equal(quantiles[0, 10], median[0])
    assert (quantiles[..., 1:] >= quantiles[..., :-1]).all()


@given(raw=st.lists(st.floats(-10, 10, width=32), min_size=20, max_size=20), median=st.floats(-3, 3, width=32))
def test_quantiles_increase_strictly_at_ordinary_outputs(raw, median):
    quantiles = ordered_quantiles(torch.tensor([median]), positive_gaps(torch.tensor([raw])))
    assert (quantiles.diff() > 0).all()


def test_a_very_negative_raw_gap_underflows_to_exactly_zero():
    assert positive_gaps(torch.tensor([-105.0])) == 0.0


def test_gradients_are_those_of_the_plain_formula():
    """Against cumulative sums written out with torch's own autograd, and by finite differences."""
    median = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    raw = torch.randn(2, 3, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 3, 9, dtype=torch.float64)

    gaps = 0.02 / math.log(2) * functional.softplus(raw)
    left = gaps[..., :4].flip(-1).cumsum(-1).flip(-1)
    plain = torch.cat([median[..., None] - left, median[..., None], median[..., None] + gaps[..., 4:].cumsum(-1)], -1)
    ours = ordered_quantiles(median, positive_gaps(raw))
    torch.testing.assert_close(ours, plain)
    expected = torch.autograd.grad((plain * weight).sum(), [median, raw])
    torch.testing.assert_close(torch.autograd.grad((ours * weight).sum(), [median, raw]), expected)
    assert torch.autograd.gradcheck(lambda m, r: ordered_quantiles(m, positive_gaps(r)), (median, raw))


def test_a_detached_anchor_keeps_the_values_and_changes_only_the_medians_gradient():
    """The median gets K times its own quantile's gradient; the gaps get what they always get."""
    median = torch.randn(5, requires_grad=True)
    gaps = torch.rand(5, 6, requires_grad=True)
    weight = torch.randn(5, 7)
    shared = ordered_quantiles(median, gaps)
    detached = ordered_quantiles(median, gaps, detach_anchor=True)
    assert torch.equal(shared, detached)
    _, gaps_shared = torch.autograd.grad((shared * weight).sum(), [median, gaps])
    on_median, gaps_detached = torch.autograd.grad((detached * weight).sum(), [median, gaps])
    torch.testing.assert_close(gaps_detached, gaps_shared)
    torch.testing.assert_close(on_median, 7 * weight[:, 3])


@pytest.mark.bad_input
def test_mismatched_gaps_are_refused():
    with pytest.raises(ValueError, match=r"gaps must hold c left and c right gaps.*got 3"):
        ordered_quantiles(torch.zeros(2), torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"gaps must have shape \(2, 4\); got \(3, 4\)"):
        ordered_quantiles(torch.zeros(2), torch.zeros(3, 4))
