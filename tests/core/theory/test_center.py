import pytest
import torch

from lerobot_policy_quantile.core.losses import quantile_loss
from lerobot_policy_quantile.core.theory import center
from lerobot_policy_quantile.core.theory.laws import BIMODAL, CAUCHY, LAPLACE, LOGISTIC, NORMAL, SKEWED, UNIFORM

T = torch.linspace(-1, 1, 21, dtype=torch.float64)


def test_shifted_quantiles_keep_their_gaps():
    calibrated = NORMAL.icdf(0.5 + 0.4 * T)
    moved = center.shifted_quantiles(torch.tensor([0.0, 2.0]).double(), calibrated)
    torch.testing.assert_close(moved[1] - moved[0], torch.full_like(calibrated, 2.0))
    torch.testing.assert_close(moved[0].diff(), calibrated.diff())


def test_center_gradient_is_the_derivative_of_the_loss():
    levels = 0.5 + 0.4 * T
    calibrated = SKEWED.icdf(levels)
    y = SKEWED.sample(200, generator=torch.Generator().manual_seed(0))
    middle = torch.full((200,), float(calibrated[10]), dtype=torch.float64, requires_grad=True)
    quantile_loss(center.shifted_quantiles(middle, calibrated), y, levels).sum().backward()
    torch.testing.assert_close(middle.grad, center.center_gradient(y, calibrated, levels))


def test_median_only_gradient_is_plus_or_minus_a_half():
    gradient = center.center_gradient(
        torch.tensor([-1.0, 1.0]).double(), torch.zeros(1).double(), torch.tensor([0.5]).double()
    )
    assert torch.equal(gradient, torch.tensor([0.5, -0.5]).double())


def test_score_covariance_by_hand():
    """Levels 1/4, 1/2: variances 3/16 and 1/4, covariance 1/4 - 1/8."""
    expected = torch.tensor([[3 / 16, 1 / 8], [1 / 8, 1 / 4]])
    torch.testing.assert_close(center.score_covariance(torch.tensor([0.25, 0.5])), expected)


@pytest.mark.parametrize("eps", [0.01, 0.2, 0.475])
def test_joint_gradient_variance_is_the_mean_covariance(eps):
    total = float(center.score_covariance(0.5 + eps * T).mean())
    assert abs(center.joint_gradient_variance(T, eps) - total) < 1e-13


def test_spread_of_three_levels_by_hand():
    """t = -1, 0, 1: pair distances sum to 2 (1 + 1 + 2) = 8; over 2 * 9."""
    assert abs(center.spread(torch.tensor([-1.0, 0.0, 1.0])) - 8 / 18) < 1e-7


def test_correction_slope_is_the_mean_density():
    assert abs(center.correction_slope(UNIFORM, 0.5 + 0.4 * T) - 1) < 1e-12
    assert abs(center.correction_slope(NORMAL, torch.tensor([0.5]).double()) - (2 * torch.pi) ** -0.5) < 1e-12


@pytest.mark.parametrize("law", [NORMAL, LOGISTIC, SKEWED, CAUCHY], ids=lambda law: law.name)
def test_slope_expansion_holds_to_third_order(law):
    """Halving eps must shrink the remainder by more than the eps^2 term's factor of four."""
    remainders = [
        abs(center.correction_slope(law, 0.5 + eps * T) - center.slope_expansion(law, T, eps)) for eps in (0.1, 0.05)
    ]
    assert remainders[1] < remainders[0] / 6 or remainders[0] < 1e-9


@pytest.mark.parametrize(
    ("law", "ratio"), [(NORMAL, 0.67), (LOGISTIC, 0.75), (UNIFORM, 0.34), (LAPLACE, 1.33), (CAUCHY, 1.34)]
)
def test_wide_grid_ratios(law, ratio):
    """Joint supervision is quieter for light tails and noisier for Laplace and Cauchy."""
    assert round(center.noise_ratio(law, T, 0.475), 2) == ratio


@pytest.mark.parametrize("law", [NORMAL, LOGISTIC, SKEWED, CAUCHY], ids=lambda law: law.name)
def test_close_levels_make_joint_updates_quieter(law):
    assert center.noise_ratio(law, T, 0.05) < 1
    slope = (1 - center.noise_ratio(law, T, 1e-4)) / 1e-4
    assert abs(slope - 4 * center.spread(T)) < 1e-3


@pytest.mark.bad_input
def test_a_law_without_a_density_is_refused():
    with pytest.raises(ValueError, match="law must have a density for this; bimodal has none"):
        center.correction_slope(BIMODAL, 0.5 + 0.1 * T)
