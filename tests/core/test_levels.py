import pytest
import torch

from lerobot_policy_quantile.core.levels import check_levels, check_median_levels, quantile_levels


def test_default_levels_are_the_papers():
    """tau_k = 0.025 + 0.95 k / 20."""
    levels = quantile_levels(dtype=torch.float64)
    expected = 0.025 + 0.95 * torch.arange(21, dtype=torch.float64) / 20
    torch.testing.assert_close(levels, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("k", [3, 5, 9, 11, 15, 21, 25, 31])
def test_levels_of_every_k_are_symmetric_with_an_exact_median(k):
    levels = quantile_levels(k)
    check_median_levels(levels)
    assert levels[k // 2] == 0.5
    torch.testing.assert_close(levels + levels.flip(0), torch.ones(k), rtol=0, atol=1e-7)


@pytest.mark.bad_input
@pytest.mark.parametrize("k", [20, 1, 0, -3])
def test_an_even_or_too_small_k_is_refused(k):
    with pytest.raises(ValueError, match=f"K must be odd and at least 3.*got {k}"):
        quantile_levels(k)


@pytest.mark.bad_input
@pytest.mark.parametrize("levels", [[0.5, 0.1], [0.1, 0.1], [0.0, 0.5], [0.5, 1.0], [-0.1, 0.5], [0.1, float("nan")]])
def test_levels_out_of_order_or_outside_are_refused(levels):
    with pytest.raises(ValueError, match=r"levels must increase strictly inside \(0, 1\); got \["):
        check_levels(torch.tensor(levels))


@pytest.mark.bad_input
def test_levels_without_a_median_are_refused():
    with pytest.raises(ValueError, match=r"odd in number.*got K = 4"):
        check_median_levels(torch.tensor([0.1, 0.4, 0.6, 0.9]))
    with pytest.raises(ValueError, match=r"must have 0\.5 in the middle; got 0\.4"):
        check_median_levels(torch.tensor([0.1, 0.4, 0.9]))
    with pytest.raises(ValueError, match="vector of at least two"):
        check_levels(torch.tensor([0.5]))
