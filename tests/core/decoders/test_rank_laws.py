import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lerobot_policy_quantile.core._normal import phi
from lerobot_policy_quantile.core.decoders.rank_laws import (
    ChunkDraw,
    DensestInterval,
    DensityWeighted,
    Fixed,
    Window,
    density_score,
    interval_probabilities,
    invert_interval_cdf,
)
from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.core.quantile_function import QuantileFunction
from tests.core.test_quantile_function import random_function

MOTION = [0, 1, 2]


@given(l=st.floats(0, 0.49), temperature=st.floats(0.05, 2), z=st.floats(-6, 6))
def test_window_ranks_stay_inside_the_window_and_follow_the_formula(l, temperature, z):
    latent = torch.full((1, 1, 4), z, dtype=torch.float64)
    rank = Window(l, temperature).ranks(ChunkDraw(latent, random_function(1, 2, 4), MOTION))
    assert ((rank >= l) & (rank <= 1 - l)).all()
    torch.testing.assert_close(rank, l + (1 - 2 * l) * phi(temperature * latent))


def test_a_window_with_temperature_one_is_uniform_on_its_interval():
    latent = torch.randn(20_000, 1, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rank = Window(0.2).ranks(ChunkDraw(latent, random_function(1, 1, 1), [0])).flatten().sort().values
    uniform = 0.2 + 0.6 * (torch.arange(20_000) + 0.5) / 20_000
    assert (rank - uniform).abs().max() < 0.011


def test_density_score_averages_steps_and_scored_coordinates():
    """Paper eq. B.4 written with loops, for one row and one interval."""
    q = random_function(2, 3, 4)
    score = density_score(q, MOTION)
    j, total = 7, 0.0
    for h in range(3):
        for d in MOTION:
            gap = float(q.quantiles[1, h, d, j + 1] - q.quantiles[1, h, d, j])
            total += float(q.levels[j + 1] - q.levels[j]) / max(gap, 1e-6)
    assert abs(float(score[1, j]) - total / 9) < 1e-9
    assert not torch.allclose(score, density_score(q))


@given(seed=st.integers(0, 200), exponent=st.sampled_from([0.0, 1.0, 2.0]))
def test_density_weights_sum_to_one_over_22_intervals(seed, exponent):
    q = random_function(3, 2, 4, seed=seed)
    edges, probability = interval_probabilities(density_score(q), q.levels, exponent)
    assert len(edges) == 23
    assert edges[0] == 0
    assert edges[-1] == 1
    assert (probability > 0).all()
    torch.testing.assert_close(probability.sum(1), torch.ones(3, dtype=torch.float64))


def test_density_weights_follow_the_formula_and_outer_intervals_copy_their_neighbour():
    """Levels 1/4, 1/2, 3/4; scores 1, 3 -> over [0, 1]: 1, 1, 3, 3, all of width 1/4.
    Squared: 1, 1, 9, 9 over 20."""
    levels = torch.tensor([0.25, 0.5, 0.75])
    _, probability = interval_probabilities(torch.tensor([[1.0, 3.0]]), levels, 2.0)
    torch.testing.assert_close(probability, torch.tensor([[1.0, 1.0, 9.0, 9.0]]) / 20)
    _, linear = interval_probabilities(torch.tensor([[1.0, 3.0]]), levels, 1.0)
    torch.testing.assert_close(linear, torch.tensor([[1.0, 1.0, 3.0, 3.0]]) / 8)


def test_collapsed_gaps_do_not_overflow_the_weights():
    """A gap of zero scores 0.0475 / 1e-6; its square must not reach infinity in float32."""
    score = torch.full((1, 20), 1e-3)
    score[0, 5] = 4.75e30
    _, probability = interval_probabilities(score, quantile_levels(), 2.0)
    assert torch.isfinite(probability).all()
    torch.testing.assert_close(probability[0, 6], torch.tensor(1.0))


@given(u=st.floats(0, 1), seed=st.integers(0, 50))
def test_the_inverted_cdf_reaches_its_value(u, seed):
    q = random_function(2, 2, 3, seed=seed)
    edges, probability = interval_probabilities(density_score(q), q.levels, 2.0)
    rank = invert_interval_cdf(torch.full((2, 1, 1), u, dtype=torch.float64), edges, probability)[:, 0, 0]
    assert ((rank >= 0) & (rank <= 1)).all()
    left = (torch.searchsorted(edges, rank, right=True) - 1).clamp(0, len(edges) - 2)
    cdf = torch.cat([torch.zeros(2, 1, dtype=torch.float64), probability.cumsum(1)], 1)
    inside = (rank - edges[left]) / edges.diff()[left]
    rows = torch.arange(2)
    torch.testing.assert_close(
        cdf[rows, left] + inside * probability[rows, left], torch.full((2,), u, dtype=torch.float64)
    )


def test_a_flat_density_gives_back_the_uniform_rank():
    latent = torch.randn(5, 1, 3, dtype=torch.float64)
    q = random_function(5, 2, 3)
    ranks = DensityWeighted(exponent=0.0).ranks(ChunkDraw(latent, q, [0, 1]))
    torch.testing.assert_close(ranks, phi(latent))


def test_density_weighting_prefers_dense_intervals():
    """Nine tenths of draws fall into the half of [0, 1] whose intervals are three times denser."""
    levels = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
    edges, probability = interval_probabilities(torch.tensor([[1.0, 3.0]]).double(), levels, 2.0)
    u = torch.rand(1, 1, 20_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rank = invert_interval_cdf(u, edges, probability)
    assert abs((rank > 0.5).double().mean() - 0.9) < 0.01


def test_densest_interval_is_the_midpoint_of_the_best_scored_learned_interval():
    q = random_function(3, 2, 4)
    ranks = DensestInterval("all").ranks(ChunkDraw(torch.zeros(3, 1, 4, dtype=torch.float64), q, MOTION))
    best = density_score(q).argmax(1)
    torch.testing.assert_close(ranks[:, 0, 0], (q.levels[best] + q.levels[best + 1]) / 2)
    assert (ranks == ranks[:, :, :1]).all()


def test_the_densest_interval_of_equals_does_not_hang_on_rounding():
    """Equal gaps, moved by what single precision may lose: always the lowest interval."""
    generator = torch.Generator().manual_seed(0)
    levels = quantile_levels()
    gaps = 0.1 + 1e-7 * torch.randn(64, 2, 3, len(levels) - 1, generator=generator)
    q = QuantileFunction(levels, torch.cat([torch.zeros(64, 2, 3, 1), gaps.cumsum(-1)], dim=-1) - 1)
    assert density_score(q).argmax(1).unique().numel() > 1
    ranks = DensestInterval("all").ranks(ChunkDraw(torch.zeros(64, 1, 3), q, MOTION))
    assert ranks.unique().numel() == 1


@pytest.mark.bad_input
def test_bad_parameters_are_refused():
    for l in (0.5, 0.7, -0.1, float("nan")):
        with pytest.raises(ValueError, match=r"l must lie in \[0.0, 0.5\); got"):
            Window(l)
    with pytest.raises(ValueError, match="temperature must be positive and finite; got 0"):
        Window(0.1, 0.0)
    with pytest.raises(ValueError, match=r"rank must lie in \[0.0, 1.0\]; got 2"):
        Fixed(2.0)
    with pytest.raises(ValueError, match="scored must be one of motion, all; got 'motoin'; did you mean 'motion'"):
        DensityWeighted(scored="motoin")
    with pytest.raises(ValueError, match="exponent must be finite and not negative; got -1"):
        DensityWeighted(-1.0)
