"""Ranks only where there is a choice, and routes that are kept."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lerobot_policy_quantile.core.decoders import Decoder, PerChunk, Tracked, WhereChoice, parse_decoder
from lerobot_policy_quantile.core.decoders.choice import wide_coordinates
from lerobot_policy_quantile.core.episode import Episode
from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.core.quantile_function import QuantileFunction
from tests.core.test_quantile_function import random_function

LEVELS = quantile_levels()
MOTION = [0, 1, 2]


def law(*, steps: int = 4, fork: slice | None = slice(0, 4), narrow: float = 0.01) -> QuantileFunction:
    """Four coordinates (the last is the gripper). Coordinate 0 has two modes, -0.8 and 0.8, at the steps in `fork`;
    everything else is narrow around 0.1.
    """
    quantiles = 0.1 + narrow * (LEVELS - 0.5).expand(1, steps, 4, -1).clone()
    if fork is not None:
        modes = torch.where(LEVELS < 0.5, -0.8, 0.8) + 0.01 * (LEVELS - 0.5)
        quantiles[:, fork, 0] = torch.where(LEVELS == 0.5, torch.tensor(0.0), modes)
    return QuantileFunction(LEVELS, quantiles)


@pytest.mark.parametrize("name", ["choice", "tracking"])
@given(seed=st.integers(0, 10_000))
def test_without_a_choice_every_action_is_the_median(name, seed):
    quantiles = law(fork=None)
    decoded = parse_decoder(name).decode(quantiles, [Episode(seed)])
    assert (decoded.ranks == 0.5).all()
    torch.testing.assert_close(decoded.actions, quantiles(0.5))


@given(seed=st.integers(0, 10_000))
def test_a_choice_is_taken_at_a_mode_and_only_where_it_is(seed):
    quantiles = law()
    decoded = parse_decoder("choice").decode(quantiles, [Episode(seed)])
    assert (decoded.ranks[..., 1:] == 0.5).all()
    assert (decoded.actions[..., 0].abs() > 0.7).float().mean() == 1 or abs(float(decoded.ranks[0, 0, 0]) - 0.5) < 0.05


def test_both_modes_are_taken_and_hardly_ever_the_middle():
    quantiles = law()
    first = torch.stack([parse_decoder("choice").decode(quantiles, [Episode(s)]).actions[0, 0, 0] for s in range(200)])
    assert 70 < int((first > 0.7).sum()) < 130
    assert int((first.abs() < 0.7).sum()) <= 4


def test_the_maximum_over_steps_finds_a_fork_at_the_end_of_a_chunk_that_the_mean_misses():
    late = law(steps=10, fork=slice(9, 10))
    assert float(late.width(0.8).mean(dim=1)[0, 0]) < 0.2
    assert wide_coordinates(late, MOTION, 0.2).tolist() == [[True, False, False, False]]


def test_the_gripper_is_never_a_choice():
    quantiles = law().quantiles.clone()
    quantiles[..., 3, :] = 2 * LEVELS - 1
    assert not wide_coordinates(QuantileFunction(LEVELS, quantiles), MOTION, 0.2)[0, 3]


@given(seed=st.integers(0, 10_000), narrow=st.floats(0.0, 0.1))
def test_one_latent_serves_the_whole_episode(seed, narrow):
    """The second fork is taken as the first was, whatever lay in between."""
    decoder, episode = parse_decoder("choice"), Episode(seed)
    first = decoder.decode(law(), [episode]).ranks[0, 0, 0]
    decoder.decode(law(fork=None, narrow=narrow), [episode])
    assert decoder.decode(law(), [episode]).ranks[0, 0, 0] == first


@given(side=st.sampled_from([-0.8, 0.8]), seed=st.integers(0, 10_000))
def test_tracking_follows_what_was_executed_whatever_the_latent_says(side, seed):
    episode = Episode(seed)
    parse_decoder("tracking").decode(law(), [episode])
    episode.executed = torch.tensor([[side, 0.1, 0.1, 0.0]])
    followed = parse_decoder("tracking").decode(law(), [episode])
    assert (followed.actions[0, :, 0] * side > 0).all()
    assert episode.rank is not None
    assert (episode.rank > 0.5) == (side > 0)


def test_tracking_keeps_its_rank_where_all_fit_alike():
    """A fork whose first step is the same for all ranks: nothing executed tells, the old rank is kept."""
    episode = Episode(3)
    decoder = parse_decoder("tracking")
    decoder.decode(law(), [episode])
    rank = episode.rank
    episode.executed = torch.tensor([[0.1, 0.1, 0.1, 0.0]])
    late = law(steps=10, fork=slice(5, 10))
    ranks = decoder.decode(late, [episode]).ranks
    assert episode.rank == rank
    assert ranks[0, 0, 0] == pytest.approx(rank)


def test_tracking_rows_do_not_see_each_other():
    decoder = parse_decoder("tracking")
    quantiles = random_function(2, 3, 4, seed=5)
    together, alone = [Episode(1), Episode(2)], [Episode(1), Episode(2)]
    both = decoder.decode(quantiles, together).actions
    one = [
        decoder.decode(QuantileFunction(quantiles.levels, quantiles.quantiles[i : i + 1]), [alone[i]]).actions
        for i in (1, 0)
    ]
    torch.testing.assert_close(both, torch.cat(one[::-1]))
    assert [e.rank for e in together] == [e.rank for e in alone]


@pytest.mark.bad_input
@pytest.mark.parametrize("law_class", [WhereChoice, Tracked])
def test_a_negative_width_is_refused(law_class):
    with pytest.raises(ValueError, match=r"width must be finite and not negative; got -1"):
        law_class(-1.0)


@given(seed=st.integers(0, 500))
def test_a_width_of_zero_gives_every_moving_coordinate_the_rank(seed):
    decoder = Decoder(WhereChoice(0.0, 2.0), PerChunk(1.0), coupling="shared")
    ranks = decoder.decode(random_function(1, 3, 4, seed=seed), [Episode(seed)]).ranks
    assert (ranks[..., :3] == ranks[0, 0, 0]).all()
    assert (ranks[..., 3] == 0.5).all()
