import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.core.ordered import ordered_quantiles, positive_gaps
from lerobot_policy_quantile.core.quantile_function import QuantileFunction


def random_function(*shape: int, k: int = 21, seed: int = 0) -> QuantileFunction:
    g = torch.Generator().manual_seed(seed)
    median = torch.randn(shape, generator=g, dtype=torch.float64)
    gaps = positive_gaps(2 * torch.randn(*shape, k - 1, generator=g, dtype=torch.float64))
    return QuantileFunction(quantile_levels(k, dtype=torch.float64), ordered_quantiles(median, gaps))


def test_knots_are_met_and_segments_are_straight():
    """Knots (0.25, 0), (0.5, 1), (0.75, 3): Q(0.375) = 0.5, Q(0.7) = 1 + 2 * 0.8 = 2.6."""
    q = QuantileFunction(torch.tensor([0.25, 0.5, 0.75]), torch.tensor([0.0, 1.0, 3.0]))
    ranks = torch.tensor([0.25, 0.5, 0.75, 0.375, 0.7])
    torch.testing.assert_close(q(ranks), torch.tensor([0.0, 1.0, 3.0, 0.5, 2.6]))


def test_tails_continue_the_outer_segments():
    """Slopes 4 on the left, 8 on the right: Q(0) = 0 - 4 * 0.25, Q(1) = 3 + 8 * 0.25."""
    q = QuantileFunction(torch.tensor([0.25, 0.5, 0.75]), torch.tensor([0.0, 1.0, 3.0]))
    torch.testing.assert_close(q(torch.tensor([0.0, 1.0])), torch.tensor([-1.0, 5.0]))


def test_the_median_is_returned_bit_for_bit():
    g = torch.Generator().manual_seed(1)
    median = torch.randn(64, 10, 7, generator=g)
    quantiles = ordered_quantiles(median, positive_gaps(torch.randn(64, 10, 7, 20, generator=g)))
    assert torch.equal(QuantileFunction(quantile_levels(), quantiles)(0.5), median)


@given(rank=st.floats(0, 1), seed=st.integers(0, 50))
def test_cdf_undoes_the_quantile_function(rank, seed):
    q = random_function(2, 3, seed=seed)
    torch.testing.assert_close(q.cdf(q(rank)), torch.full((2, 3), rank, dtype=torch.float64), atol=1e-9, rtol=0)


@given(share=st.floats(0, 1), seed=st.integers(0, 50))
def test_the_quantile_function_undoes_the_cdf(share, seed):
    """For any value between Q(0) and Q(1)."""
    q = random_function(2, 3, seed=seed)
    value = q(0.0) + share * (q(1.0) - q(0.0))
    torch.testing.assert_close(q(q.cdf(value)), value, atol=1e-9, rtol=1e-9)


def test_cdf_is_zero_below_and_one_above_everything():
    q = random_function(5)
    assert torch.equal(q.cdf(q(0.0) - 1), torch.zeros(5, dtype=torch.float64))
    assert torch.equal(q.cdf(q(1.0) + 1), torch.ones(5, dtype=torch.float64))


def test_a_flat_piece_is_a_jump_of_the_cdf():
    """Q is 1 on [0.25, 0.75]: F(1) is the largest rank with Q <= 1."""
    q = QuantileFunction(torch.tensor([0.1, 0.25, 0.75, 0.9]), torch.tensor([0.0, 1.0, 1.0, 2.0]))
    torch.testing.assert_close(q.cdf(torch.tensor([1.0])), torch.tensor([0.75]))
    assert q.cdf(torch.tensor([0.999])) <= 0.25
    flat = QuantileFunction(torch.tensor([0.25, 0.5, 0.75]), torch.tensor([1.0, 1.0, 1.0]))
    assert torch.equal(flat.cdf(torch.tensor([0.9, 1.0, 1.1])), torch.tensor([0.0, 1.0, 1.0]))


def test_ranks_broadcast_over_coordinates_and_stack_samples():
    q = random_function(2, 3, 4)
    assert torch.equal(q(0.3), q(torch.full((2, 3, 4), 0.3, dtype=torch.float64)))
    per_row = torch.rand(2, 1, 1, dtype=torch.float64)
    assert torch.equal(q(per_row), q(per_row.expand(2, 3, 4)))
    samples = torch.rand(100, 2, 3, 4, dtype=torch.float64)
    drawn = q(samples)
    assert drawn.shape == (100, 2, 3, 4)
    assert torch.equal(drawn[17], q(samples[17]))
    torch.testing.assert_close(q.cdf(drawn), samples)


def test_interval_densities_are_level_over_value_differences():
    """0.25 / 1 and 0.25 / 2; a collapsed gap counts as 1e-6."""
    q = QuantileFunction(torch.tensor([0.25, 0.5, 0.75]), torch.tensor([[0.0, 1.0, 3.0], [1.0, 1.0, 2.0]]))
    torch.testing.assert_close(q.interval_densities(), torch.tensor([[0.25, 0.125], [0.25e6, 0.25]]))


def test_width_of_a_central_interval():
    q = random_function(4)
    torch.testing.assert_close(q.width(0.8), q(0.9) - q(0.1))
    assert torch.equal(q.width(0.0), torch.zeros(4, dtype=torch.float64))


def test_half_precision_knots_are_read_with_exact_levels():
    quantiles = torch.linspace(-1, 1, 21).to(torch.bfloat16).expand(3, 21)
    q = QuantileFunction(quantile_levels(), quantiles)
    assert q.levels.dtype == torch.float32
    assert torch.equal(q(0.5), quantiles[:, 10].float())


@pytest.mark.bad_input
def test_bad_knots_are_refused():
    levels = quantile_levels(3)
    with pytest.raises(ValueError, match="quantiles must have shape"):
        QuantileFunction(levels, torch.zeros(2, 4))
    with pytest.raises(ValueError, match="quantiles must not contain NaN"):
        QuantileFunction(levels, torch.tensor([0.0, float("nan"), 1.0]))
    with pytest.raises(ValueError, match="must not decrease along the last axis"):
        QuantileFunction(levels, torch.tensor([0.0, 2.0, 1.0]))
    with pytest.raises(ValueError, match="levels must increase strictly"):
        QuantileFunction(levels.flip(0), torch.zeros(3))
    with pytest.raises(ValueError, match=r"mass must lie in \[0.0, 1.0\]; got 1.5"):
        QuantileFunction(levels, torch.zeros(3)).width(1.5)
