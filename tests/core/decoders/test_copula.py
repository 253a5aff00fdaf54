"""The copula: recovered from data it made, drawn with the correlation it has."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lerobot_policy_quantile.core._normal import phi
from lerobot_policy_quantile.core.decoders import fit_copula, parse_decoder
from lerobot_policy_quantile.core.episode import Episode, episodes_from_seeds
from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.core.quantile_function import QuantileFunction

LEVELS = quantile_levels()
H, D = 2, 3
SIZE = H * D


def uniform_law(rows: int) -> QuantileFunction:
    """Every coordinate uniform on [0, 1]: the action is its rank."""
    return QuantileFunction(LEVELS, LEVELS.expand(rows, H, D, -1).clone())


def correlation(seed: int) -> torch.Tensor:
    factor = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    gram = factor @ factor.T + torch.eye(SIZE, dtype=torch.float64)
    scale = gram.diagonal().rsqrt()
    return (scale[:, None] * gram * scale).float()


@given(seed=st.integers(0, 20))
def test_the_fit_recovers_the_copula_that_made_the_data(seed):
    true = correlation(seed)
    draws = torch.randn(8000, SIZE, generator=torch.Generator().manual_seed(seed)) @ torch.linalg.cholesky(true).T
    found = fit_copula(
        uniform_law(8000), phi(draws).view(-1, H, D), torch.ones(8000, H, D, dtype=torch.bool), shrinkage=0.0
    )
    assert (found - true).abs().max() < 0.05


@given(seed=st.integers(0, 200), rows=st.integers(1, 4))
def test_a_fit_to_hardly_any_data_can_still_be_drawn_from(seed, rows):
    draw = torch.Generator().manual_seed(seed)
    valid = torch.rand(rows, H, D, generator=draw) > 0.5
    found = fit_copula(uniform_law(rows), torch.rand(rows, H, D, generator=draw), valid)
    assert torch.equal(found, found.T)
    assert (found.diagonal() == 1).all()
    torch.linalg.cholesky(found.double())  # raises if it is not definite


def test_a_rank_counts_as_much_as_its_prediction_is_wide():
    """Agreeing in a wide place outweighs disagreeing in a narrow one."""
    quantiles = LEVELS.expand(2, 1, 2, -1).clone()
    quantiles[1] *= 0.01
    actions = torch.tensor([[[0.9, 0.9]], [[0.009, 0.001]]])
    found = fit_copula(QuantileFunction(LEVELS, quantiles), actions, torch.ones(2, 1, 2, dtype=torch.bool))
    assert found[0, 1] > 0.9


def test_draws_have_the_fitted_correlation_and_uniform_ranks():
    true = correlation(1)
    decoder = parse_decoder("copula(rho=0)").with_copula(true)
    ranks = decoder.decode(uniform_law(6000), episodes_from_seeds(range(6000))).ranks
    scores = torch.special.ndtri(ranks.clamp(1e-6, 1 - 1e-6))[..., :2].flatten(1)  # the gripper stays at its median
    keep = [i for i in range(SIZE) if i % D != D - 1]
    assert (torch.corrcoef(scores.T) - true[keep][:, keep]).abs().max() < 0.06
    assert (ranks[..., D - 1] == 0.5).all()
    assert abs(float(ranks[..., 0].mean()) - 0.5) < 0.02


def test_the_correlation_is_factored_once_however_many_chunks_are_drawn(monkeypatch):
    calls, cholesky = [], torch.linalg.cholesky
    monkeypatch.setattr(torch.linalg, "cholesky", lambda matrix: calls.append(1) or cholesky(matrix))
    decoder = parse_decoder("copula").with_copula(correlation(3))
    for _ in range(3):
        decoder.decode(uniform_law(2), episodes_from_seeds(range(2)))
    assert len(calls) == 1


def test_chunks_follow_the_ar_process():
    decoder = parse_decoder("copula(rho=1)").with_copula(correlation(2))
    episode = Episode(4)
    first = decoder.decode(uniform_law(1), [episode]).ranks
    assert torch.equal(decoder.decode(uniform_law(1), [episode]).ranks, first)


@pytest.mark.bad_input
def test_a_copula_that_was_not_fitted_is_refused():
    with pytest.raises(ValueError, match="decoder copula needs a correlation fitted to training data"):
        parse_decoder("copula").decode(uniform_law(1), [Episode(0)])


@pytest.mark.bad_input
def test_a_copula_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"correlation must have shape \(6, 6\); got \(4, 4\)"):
        parse_decoder("copula").with_copula(torch.eye(4)).decode(uniform_law(1), [Episode(0)])


def test_only_the_copula_takes_a_correlation():
    shared = parse_decoder("shared")
    assert shared.with_copula(torch.eye(SIZE)) is shared
    assert torch.equal(parse_decoder("copula").with_copula(torch.eye(SIZE)).temporal.correlation, torch.eye(SIZE))
