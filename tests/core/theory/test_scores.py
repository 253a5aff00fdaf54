import pytest
import torch

from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.core.theory import scores
from lerobot_policy_quantile.core.theory.laws import (
    ATOM,
    BIMODAL,
    CAUCHY,
    LAPLACE,
    LOGISTIC,
    NORMAL,
    SKEWED,
    UNIFORM,
    StepLaw,
    random_step_law,
)

COIN = StepLaw(torch.tensor([0.0, 1.0]).double(), torch.tensor([0.5, 0.5]).double())


def random_law(n: int = 8, seed: int = 0) -> StepLaw:
    return random_step_law(n, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("law", [NORMAL, LOGISTIC, UNIFORM, LAPLACE, CAUCHY, SKEWED, BIMODAL], ids=lambda law: law.name)
def test_laws_are_consistent(law):
    """F(F^-1(u)) = u, and the density is the CDF's slope."""
    u = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)
    x = law.icdf(u)
    torch.testing.assert_close(law.cdf(x), u)
    if law.pdf is not None:
        inner = x[(u - 0.5).abs() > 0.01]
        slope = (law.cdf(inner + 1e-5) - law.cdf(inner - 1e-5)) / 2e-5
        torch.testing.assert_close(law.pdf(inner), slope, rtol=1e-5, atol=1e-8)


def test_an_atom_is_a_jump_of_the_cdf_and_a_flat_piece_of_the_quantile_function():
    z = torch.tensor([-1e-9, 0.0]).double()
    assert abs(float(ATOM.cdf(z).diff()) - 0.4) < 1e-6
    assert not ATOM.icdf(torch.tensor([0.31, 0.5, 0.69]).double()).any()


def test_shared_objective_without_reference_is_squared_regression():
    """B = alpha = 0: the path is 0 and the target Y."""
    target, zeros = torch.tensor([1.0, 3.0]), torch.zeros(2)
    loss = scores.shared_objective(lambda path, alpha: path + 2.0, target, zeros, zeros)
    assert loss == ((2 - 1) ** 2 + (2 - 3) ** 2) / 2


def test_shared_objective_sees_the_interpolated_path():
    """alpha = 1/4 between B = 4 and Y = 8 is 5; predicting 5 for Y - B = 4 costs 1."""
    loss = scores.shared_objective(lambda path, a: path, torch.tensor([8.0]), torch.tensor([4.0]), torch.tensor([0.25]))
    assert loss == 1.0


def test_squared_risk_splits_into_bias_and_variance():
    """A fair coin predicted as 0.3: (0.3 - 0.5)^2 + 0.25 = 0.29 = (0.09 + 0.49) / 2."""
    bias, variance = scores.squared_risk_parts(0.3, COIN)
    assert abs(bias - 0.04) < 1e-12
    assert abs(variance - 0.25) < 1e-12


@pytest.mark.parametrize(("a", "b"), [(0.0, 0.0), (-1.5, 2.0), (3.0, 1.0)])
def test_threshold_distance_is_the_distance(a, b):
    assert abs(scores.threshold_distance(a, b) - abs(a - b)) < 1e-9


def test_cdf_score_of_a_normal_law_has_its_closed_form():
    """CRPS(N(0,1), 0) = 2 phi(0) - 1 / sqrt(pi) = 0.23369..."""
    assert abs(scores.cdf_score(NORMAL, 0.0) - (2 / (2 * torch.pi) ** 0.5 - 1 / torch.pi**0.5)) < 1e-6


def test_pairwise_score_of_a_coin():
    """y = 0: E|R - 0| - E|R - R'| / 2 = 1/2 - 1/4."""
    assert abs(scores.pairwise_score(COIN, 0.0) - 0.25) < 1e-12
    assert abs(scores.cdf_score(COIN.as_law(), 0.0) - 0.25) < 1e-9


@pytest.mark.parametrize("law", [NORMAL, SKEWED, BIMODAL, ATOM, random_law().as_law()], ids=lambda law: law.name)
@pytest.mark.parametrize("y", [-2.0, 0.0, 0.7])
def test_quantile_score_is_the_cdf_score(law, y):
    assert abs(scores.quantile_score(law, y) - scores.cdf_score(law, y)) < 1e-4


def test_theorem_1_sides_agree_for_a_wrong_prediction_too():
    left, right = scores.theorem_1_sides(SKEWED, random_law(5, seed=3))
    assert left > 0.1
    assert abs(left - right) < 1e-4


def test_excess_score_is_the_cdf_distance():
    truth = random_law(6, seed=4)
    wrong, _ = scores.theorem_1_sides(NORMAL, truth)
    right, _ = scores.theorem_1_sides(truth.as_law(), truth)
    distance = scores.cdf_distance(NORMAL, truth.as_law())
    assert distance > 0.01
    assert abs(wrong - right - distance) < 1e-5


def test_finite_risk_is_least_at_the_true_quantiles():
    law = random_law(40, seed=5)
    levels = quantile_levels(5, dtype=torch.float64)
    weights = torch.full_like(levels, 0.2)
    truth = law.as_law().icdf(levels)
    best = scores.finite_risk(truth, levels, weights, law)
    g = torch.Generator().manual_seed(6)
    for _ in range(50):
        moved = truth + 0.3 * torch.randn(5, generator=g, dtype=torch.float64)
        assert scores.finite_risk(moved, levels, weights, law) >= best - 1e-12
