import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lerobot_policy_quantile.core._normal import phi, phi_inverse
from lerobot_policy_quantile.core.calibration import (
    climatology,
    covered,
    crps,
    gaussian_climatology,
    inside_interval,
    interval_coverage,
    interval_width,
    level_coverage,
    pinball_skill,
    pit,
    sample_crps,
    sample_quantiles,
)
from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.core.losses import pinball
from lerobot_policy_quantile.core.quantile_function import QuantileFunction

N = 20_000
LEVELS = quantile_levels(dtype=torch.float64)


def normal_quantiles(n: int, scale: float = 1.0) -> QuantileFunction:
    return QuantileFunction(LEVELS, scale * phi_inverse(LEVELS).expand(n, -1))


def normal_targets(n: int) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def everything(target: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(target, dtype=torch.bool)


def test_a_true_law_is_covered_at_every_level():
    """Standard error at most 0.5 / sqrt(20000) = 0.0035."""
    target = normal_targets(N)
    coverage = level_coverage(normal_quantiles(N), target, everything(target))
    torch.testing.assert_close(coverage, LEVELS, atol=0.015, rtol=0)


@pytest.mark.parametrize("mass", [0.5, 0.8, 0.95])
def test_central_intervals_hold_their_mass_and_a_narrow_law_does_not(mass):
    target = normal_targets(N)
    assert abs(interval_coverage(normal_quantiles(N), target, everything(target), mass) - mass) < 0.02
    narrow = interval_coverage(normal_quantiles(N, 0.5), target, everything(target), mass)
    expected = 2 * phi(0.5 * phi_inverse(torch.tensor((1 + mass) / 2, dtype=torch.float64))) - 1
    assert abs(narrow - expected) < 0.02


def test_pit_of_the_true_law_is_uniform_and_of_a_narrow_one_is_not():
    """Kolmogorov distance of 20000 uniforms stays below 1.6 / sqrt(20000) = 0.011 (99 %)."""
    target = normal_targets(N)

    def distance(q: QuantileFunction) -> float:
        sorted_pit = pit(q, target, everything(target)).sort().values
        return float((sorted_pit - (torch.arange(N) + 0.5) / N).abs().max())

    assert distance(normal_quantiles(N)) < 0.02  # 0.011 and the piecewise-linear tails
    assert distance(normal_quantiles(N, 0.5)) > 0.1


def test_crps_of_a_uniform_law_has_its_closed_form():
    """For U(0, 1): CRPS(y) = y^2 - y + 1/3 inside, and grows by the distance outside."""
    q = QuantileFunction(LEVELS, LEVELS.expand(4, -1))
    y = torch.tensor([0.0, 0.3, 1.0, 2.5], dtype=torch.float64)
    expected = torch.tensor([1 / 3, 0.09 - 0.3 + 1 / 3, 1 / 3, 1 / 3 + 1.5], dtype=torch.float64)
    torch.testing.assert_close(crps(q, y), expected)


def test_crps_is_twice_the_integrated_pinball_loss():
    """Against a brute-force midpoint sum over 200000 ranks."""
    g = torch.Generator().manual_seed(2)
    q = QuantileFunction(LEVELS, torch.randn(6, 21, generator=g, dtype=torch.float64).sort(-1).values)
    y = torch.randn(6, generator=g, dtype=torch.float64) * 2
    ranks = ((torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000)[:, None]
    integral = pinball(y - q(ranks), ranks).mean(0)
    torch.testing.assert_close(crps(q, y), 2 * integral, atol=1e-9, rtol=1e-7)


def test_crps_of_a_point_is_the_distance():
    q = QuantileFunction(LEVELS, torch.full((2, 21), 1.5, dtype=torch.float64))
    y = torch.tensor([1.0, 4.0], dtype=torch.float64)
    torch.testing.assert_close(crps(q, y), (y - 1.5).abs())


def test_width_and_masks():
    q = QuantileFunction(LEVELS, torch.stack([LEVELS, 3 * LEVELS]))
    assert abs(interval_width(q, torch.tensor([True, False]), 0.8) - 0.8) < 1e-12
    assert abs(interval_width(q, torch.tensor([True, True]), 0.8) - 1.6) < 1e-12


def test_padding_is_left_out_even_when_it_holds_nan():
    target = torch.tensor([0.0, float("nan")], dtype=torch.float64)
    valid = torch.tensor([True, False])
    assert interval_coverage(normal_quantiles(2), target, valid, 0.5) == 1.0
    assert len(pit(normal_quantiles(2), target, valid)) == 1


def test_skill_is_zero_for_climatology_and_rises_with_knowledge():
    """Target = x + noise / 5: knowing x leaves a fifth of the spread, a skill near 1 - 0.2 / sqrt(1.04)."""
    g = torch.Generator().manual_seed(3)
    x = torch.randn(N, generator=g, dtype=torch.float64)
    target = x + 0.2 * torch.randn(N, generator=g, dtype=torch.float64)
    valid = everything(target)
    reference = climatology(target, valid, LEVELS)
    assert abs(pinball_skill(reference, reference, target, valid)) < 1e-12
    informed = QuantileFunction(LEVELS, x[:, None] + 0.2 * phi_inverse(LEVELS))
    assert abs(pinball_skill(informed, reference, target, valid) - (1 - 0.2 / 1.04**0.5)) < 0.01


def test_climatology_is_the_datas_own_quantiles_per_coordinate():
    target = torch.stack([torch.arange(101.0), 2 * torch.arange(101.0)], dim=1)
    valid = everything(target)
    valid[50:, 1] = False
    q = climatology(target, valid, torch.tensor([0.25, 0.5, 0.75]))
    assert q.shape == target.shape
    torch.testing.assert_close(q.quantiles[0], torch.tensor([[25.0, 50.0, 75.0], [24.5, 49.0, 73.5]]))


@pytest.mark.bad_input
def test_nothing_valid_nan_and_wrong_shapes_are_refused():
    target = torch.zeros(3, dtype=torch.float64)
    with pytest.raises(ValueError, match="valid must pick at least one coordinate"):
        level_coverage(normal_quantiles(3), target, torch.zeros(3, dtype=torch.bool))
    with pytest.raises(ValueError, match="target must not contain NaN"):
        pit(normal_quantiles(3), target + float("nan"), everything(target))
    with pytest.raises(ValueError, match="target must have shape"):
        crps(normal_quantiles(3), torch.zeros(4, dtype=torch.float64))
    with pytest.raises(ValueError, match="mass must lie in"):
        interval_coverage(normal_quantiles(3), target, everything(target), 80.0)


# --- laws known by samples --------------------------------------------------------------------

numbers = st.floats(-50, 50, width=32)
SAMPLES = st.lists(numbers, min_size=1, max_size=12)


def column(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


@given(SAMPLES, numbers)
def test_sample_crps_is_the_mean_distance_less_half_the_mean_of_all_pairs(values, y):
    x, target = column(values), torch.tensor([y], dtype=torch.float64)
    pairs = (x - x.T).abs()
    expected = (x - target).abs().mean() - pairs.mean() / 2
    torch.testing.assert_close(sample_crps(x, target), expected[None], atol=1e-9, rtol=1e-9)
    if len(values) > 1:
        fair = (x - target).abs().mean() - pairs.sum() / (2 * len(values) * (len(values) - 1))
        torch.testing.assert_close(sample_crps(x, target, fair=True), fair[None], atol=1e-9, rtol=1e-9)


@given(SAMPLES, numbers, st.randoms())
def test_sample_crps_is_never_negative_and_knows_no_order(values, y, random):
    target = torch.tensor([y], dtype=torch.float64)
    score = sample_crps(column(values), target)
    random.shuffle(values)
    assert score >= -1e-9
    torch.testing.assert_close(sample_crps(column(values), target), score, atol=1e-9, rtol=1e-9)


def test_a_single_sample_scores_its_distance():
    assert float(sample_crps(torch.tensor([[1.5]]), torch.tensor([4.0]))) == 2.5


def test_sample_crps_is_the_integral_of_the_squared_distance_of_the_two_steps():
    """CRPS = integral of (F(x) - [x >= y])^2; F is the samples' step function. Midpoint sum of 400,000 pieces."""
    x, y = column([-1.0, 0.25, 0.5, 2.0]), torch.tensor([0.7], dtype=torch.float64)
    grid = torch.linspace(-3, 4, 400_001, dtype=torch.float64)
    middle = (grid[1:] + grid[:-1]) / 2
    steps = (x <= middle).double().mean(0)
    integral = ((steps - (middle >= y).double()) ** 2).sum() * (grid[1] - grid[0])
    torch.testing.assert_close(sample_crps(x, y)[0], integral, atol=1e-4, rtol=0)


def test_the_fair_score_of_few_samples_is_that_of_their_law():
    """U(0, 1) has the mean score 1/6 on its own draws; four samples as they are score 1/6 + 1/24.

    Mean over 20,000 targets, standard error about 0.001.
    """
    draw = torch.Generator().manual_seed(5)
    x, y = torch.rand(4, N, generator=draw, dtype=torch.float64), torch.rand(N, generator=draw, dtype=torch.float64)
    assert abs(float(sample_crps(x, y, fair=True).mean()) - 1 / 6) < 0.005
    assert abs(float(sample_crps(x, y).mean()) - (1 / 6 + 1 / 24)) < 0.005


@given(SAMPLES)
def test_sample_quantiles_are_those_of_torch_and_ordered(values):
    x = column(values)
    expected = torch.quantile(x[:, 0], LEVELS)
    torch.testing.assert_close(sample_quantiles(x, LEVELS).quantiles[0], expected, atol=1e-9, rtol=1e-9)


def test_many_samples_score_as_the_law_of_their_quantiles():
    """Both are the CRPS of the standard normal, once by 2,000 samples, once by 21 quantiles with linear tails."""
    x = normal_targets(2000)[:, None].expand(-1, 5)
    y = torch.tensor([-2.0, -0.5, 0.0, 0.5, 2.0], dtype=torch.float64)
    torch.testing.assert_close(crps(sample_quantiles(x, LEVELS), y), sample_crps(x, y), atol=0.01, rtol=0)


def test_the_gaussian_of_the_data_has_its_mean_and_deviation():
    target = 3 + 2 * normal_targets(N)[:, None]
    valid = everything(target)
    valid[::2] = False
    q = gaussian_climatology(target, valid, LEVELS)
    kept = target[1::2, 0]
    assert q.shape == target.shape
    expected = kept.mean() + kept.std(correction=0) * phi_inverse(LEVELS)
    torch.testing.assert_close(q.quantiles[7, 0], expected)


def test_shares_are_means_of_what_each_target_says():
    target = normal_targets(200)
    q, valid = normal_quantiles(200), everything(target)
    torch.testing.assert_close(covered(q, target).double().mean(0), level_coverage(q, target, valid))
    inside = inside_interval(q, target, 0.8).double().mean()
    torch.testing.assert_close(inside, interval_coverage(q, target, valid, 0.8).double(), atol=1e-6, rtol=0)


@pytest.mark.bad_input
def test_too_few_samples_are_refused():
    with pytest.raises(ValueError, match="samples must be at least 2 along the first axis; got 1"):
        sample_crps(torch.zeros(1, 3), torch.zeros(3), fair=True)
    with pytest.raises(ValueError, match="samples must be at least 1 along the first axis; got 0"):
        sample_quantiles(torch.zeros(0, 3), LEVELS)
    with pytest.raises(ValueError, match="target must have shape"):
        sample_crps(torch.zeros(4, 3), torch.zeros(2))
