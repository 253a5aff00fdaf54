"""Rank handover: the new chunk goes on from the old one, and stays inside what it predicts itself."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lerobot_policy_quantile.core.decoders import PRESETS, Decoded, Decoder, Handover, hand_over, parse_decoder
from lerobot_policy_quantile.core.decoders.handover import SCHEDULES, HandedOver, handover_weights, without_padding
from lerobot_policy_quantile.core.episode import episodes_from_seeds
from lerobot_policy_quantile.core.quantile_function import QuantileFunction
from tests.core.decoders.test_composition import preset
from tests.core.test_quantile_function import random_function
from tests.support.simulated_cuda import simulated_cuda

H, D = 8, 7
NAMES = st.sampled_from(list(PRESETS))
SEEDS = st.integers(0, 200)
DELAYS = st.integers(0, H - 1)
LENGTHS = st.integers(1, H + 3)
RULES = st.sampled_from(SCHEDULES)


def old_plan(steps: int = H, *, seed: int = 0, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(steps, D, generator=torch.Generator().manual_seed(1000 + seed), dtype=torch.float64)


def chunk(name: str = "median", seed: int = 0, rows: int = 1) -> tuple[Decoder, QuantileFunction, Decoded]:
    decoder, law = preset(name, H), random_function(rows, H, D, seed=seed)
    return decoder, law, decoder.decode(law, episodes_from_seeds(range(seed, seed + rows)))


def joined(left_over: Tensor, name: str = "median", seed: int = 0, **settings) -> HandedOver:
    decoder, law, decoded = chunk(name, seed)
    return hand_over(decoded, law, [Handover(left_over, **settings)], decoder)


@given(name=NAMES, seed=SEEDS)
def test_without_a_left_over_the_chunk_is_the_decoders_own(name, seed):
    decoder, law, decoded = chunk(name, seed)
    result = hand_over(decoded, law, [None], decoder)
    assert torch.equal(result.actions, decoded.actions)
    assert torch.equal(result.ranks, decoded.ranks)
    assert not result.surprise.any()


def test_on_a_gpu_it_is_the_same_wherever_the_left_over_lies():
    left, settings = old_plan(6).float(), {"delay": 2, "schedule": "linear"}
    decoder, law, decoded = chunk("shared", rows=2)
    law = QuantileFunction(law.levels, law.quantiles.float())
    here = Decoded(*(part.float() for part in decoded))
    expected = hand_over(here, law, [Handover(left, **settings), None], decoder)
    with simulated_cuda():
        there = Decoded(*(part.to("cuda") for part in here))
        moved = QuantileFunction(law.levels.to("cuda"), law.quantiles.to("cuda"))
        for rest in (left, left.to("cuda")):
            found = hand_over(there, moved, [Handover(rest, **settings), None], decoder)
            for ours, theirs in zip(expected, found, strict=True):
                torch.testing.assert_close(ours, theirs.cpu())


@given(name=NAMES, seed=SEEDS, delay=DELAYS, steps=st.integers(1, H), schedule=RULES)
def test_a_left_over_that_the_decoder_would_choose_itself_changes_nothing(name, seed, delay, steps, schedule):
    decoder, law, decoded = chunk(name, seed)
    result = hand_over(decoded, law, [Handover(decoded.actions[0, :steps], delay, schedule)], decoder)
    torch.testing.assert_close(result.actions, decoded.actions, atol=1e-7, rtol=1e-7)


@given(name=NAMES, seed=SEEDS, delay=DELAYS, steps=LENGTHS, schedule=RULES)
def test_frozen_steps_are_the_left_over_exactly_and_beyond_the_horizon_is_the_decoders(
    name, seed, delay, steps, schedule
):
    left = old_plan(steps, seed=seed)
    decoder, law, decoded = chunk(name, seed)
    result = hand_over(decoded, law, [Handover(left, delay, schedule)], decoder)
    frozen = min(delay, steps)
    assert torch.equal(result.actions[0, :frozen], left[:frozen])
    short = hand_over(decoded, law, [Handover(left, delay, schedule, 5)], decoder)
    beyond = max(delay, 5) if schedule != "zeros" else delay
    assert torch.equal(short.actions[0, beyond:], decoded.actions[0, beyond:])


@given(
    name=st.sampled_from(["median", "window", "native", "densest", "per_step"]),
    seed=SEEDS,
    delay=DELAYS,
    schedule=RULES,
    scale=st.floats(0.1, 5),
)
def test_after_the_frozen_steps_actions_are_inside_the_central_interval(name, seed, delay, schedule, scale):
    """For decoders whose own ranks are; and whatever the old plan was."""
    decoder, law, decoded = chunk(name, seed)
    handover = Handover(old_plan(seed=seed, scale=scale).clamp(-20, 20), delay, schedule)
    actions = hand_over(decoded, law, [handover], decoder).actions[0, delay:]
    low, high = law.quantiles[0, delay:, :, 0], law.quantiles[0, delay:, :, -1]
    assert (actions >= low - 1e-9).all()
    assert (actions <= high + 1e-9).all()


@given(seed=SEEDS, delay=DELAYS, schedule=RULES, name=NAMES)
def test_a_little_change_of_the_left_over_is_a_little_change_of_the_chunk(seed, delay, schedule, name):
    """Of motion: d action / d left-over is at most 1 in sup norm, up to the slope of Q over F's, which is bounded by
    the ratio of the largest to the smallest gap; so halving the step halves the change."""
    left, nudge = old_plan(seed=seed), old_plan(seed=seed + 1)
    base = joined(left, name, seed, delay=delay, schedule=schedule).actions[..., :-1]
    changes = [
        (joined(left + step * nudge, name, seed, delay=delay, schedule=schedule).actions[..., :-1] - base).abs().max()
        for step in (1e-5, 1e-9)
    ]
    assert changes[1] <= 1e-3 * changes[0] + 1e-6


@given(seed=SEEDS, steps=st.integers(1, H), delay=DELAYS, schedule=RULES)
def test_padded_rows_are_ignored(seed, steps, delay, schedule):
    left = old_plan(steps, seed=seed)
    padded = torch.cat([left, torch.zeros(H - steps, D)])
    assert torch.equal(without_padding(padded), left)
    plain, trimmed = (
        joined(rows, "median", seed, delay=delay, schedule=schedule) for rows in (left, without_padding(padded))
    )
    assert torch.equal(plain.actions, trimmed.actions)
    assert torch.equal(plain.surprise, trimmed.surprise)
    assert not len(without_padding(torch.zeros(3, D)))


def test_ranks_relax_from_the_left_overs_to_the_decoders():
    """Law U(-1, 1) between its outer levels, left-over at rank 0.9, median decoder, delay 2, horizon 6: weights
    1 1 | 4/5 3/5 2/5 1/5 | 0 0, so ranks 0.5 + 0.4 w."""
    levels = torch.linspace(0.025, 0.975, 21)
    law = QuantileFunction(levels, (2 * levels - 1).expand(1, H, 1, 21))
    decoder = parse_decoder("median").with_grippers([])
    decoded = decoder.decode(law, episodes_from_seeds([0]))
    result = hand_over(decoded, law, [Handover(torch.full((H, 1), 0.8), 2, "linear", 6)], decoder)
    expected = 0.5 + 0.4 * torch.tensor([1, 1, 0.8, 0.6, 0.4, 0.2, 0, 0])
    torch.testing.assert_close(result.ranks[0, :, 0], expected)
    torch.testing.assert_close(result.actions[0, :, 0], 2 * expected - 1)


def test_our_own_weights_begin_high_and_fade_fast():
    weights = handover_weights("fade", 4, 8, 10)
    torch.testing.assert_close(weights, torch.tensor([1, 1, 1, 1, 0.95, 0.1425, 0.021375, 0.00320625, 0, 0]))


def test_a_short_rest_relaxes_over_the_horizon():
    """As above with two left-over steps, both frozen: their distance of ranks, 0.4, is carried on and relaxes."""
    levels = torch.linspace(0.025, 0.975, 21)
    law = QuantileFunction(levels, (2 * levels - 1).expand(1, H, 1, 21))
    decoder = parse_decoder("median").with_grippers([])
    decoded = decoder.decode(law, episodes_from_seeds([0]))
    result = hand_over(decoded, law, [Handover(torch.full((2, 1), 0.8), 2, "linear", 6)], decoder)
    torch.testing.assert_close(result.ranks[0, :, 0], 0.5 + 0.4 * torch.tensor([1, 1, 0.8, 0.6, 0.4, 0.2, 0, 0]))


def test_rows_do_not_see_each_other():
    decoder, law, decoded = chunk("independent", rows=3)
    handovers = [Handover(old_plan(5), 2), None, Handover(old_plan(8, seed=1), 4, "exp", 6)]
    together = hand_over(decoded, law, handovers, decoder)
    for row in range(3):
        one = Decoded(decoded.actions[row : row + 1], decoded.ranks[row : row + 1])
        alone = hand_over(one, law.rows([row]), [handovers[row]], decoder)
        for whole, part in zip(together, alone, strict=True):
            assert torch.equal(whole[row], part[0])


def gripper_chunk(low: float, high: float, left: float, decoder: str = "median") -> Tensor:
    """One gripper coordinate beside one of motion, its law uniform on [low, high], its left-over constant."""
    levels = torch.linspace(0.025, 0.975, 21)
    share = (levels - levels[0]) / (levels[-1] - levels[0])
    law = QuantileFunction(levels, torch.stack([share, low + (high - low) * share]).expand(1, H, 2, 21))
    chosen = parse_decoder(decoder)
    decoded = chosen.decode(law, episodes_from_seeds([0]))
    left_over = torch.tensor([[0.5, left]]).expand(6, 2)
    return hand_over(decoded, law, [Handover(left_over, 2)], chosen).actions[0, :, 1]


def test_a_seam_does_not_open_a_closed_hand_unless_the_law_is_sure():
    doubtful = gripper_chunk(-1.2, 0.9, left=1.0)
    assert (doubtful[:6] > 0).all()
    assert (doubtful[6:] < 0).all(), "beyond the left-over the decoder's rule holds"
    sure = gripper_chunk(-1.2, -0.8, left=1.0)
    assert (sure[:2] == 1.0).all()
    torch.testing.assert_close(sure[2:], torch.full((6,), -1.0))
    closing = gripper_chunk(-0.9, 1.2, left=-1.0)
    assert (closing[2:6] < 0).all()


def test_a_gripper_on_the_same_side_keeps_the_decoders_rule():
    same = gripper_chunk(0.2, 0.6, left=1.0)
    torch.testing.assert_close(same[2:], torch.full((6,), 0.4))


def test_surprise_is_the_distance_from_the_interval_in_its_widths():
    """Interval [-1, 1] of width 2: left-overs 0.5, 1, 2 and -4 lie 0, 0, 1/2 and 3/2 widths outside."""
    levels = torch.linspace(0.025, 0.975, 21)
    law = QuantileFunction(levels, torch.linspace(-1, 1, 21).expand(1, H, 1, 21))
    decoder = parse_decoder("median").with_grippers([])
    left = torch.tensor([[0.5], [1.0], [2.0], [-4.0]])
    result = hand_over(decoder.decode(law, episodes_from_seeds([0])), law, [Handover(left)], decoder)
    torch.testing.assert_close(result.surprise[0, :, 0], torch.tensor([0, 0, 0.5, 1.5, 0, 0, 0, 0]))
    assert result.surprises([Handover(left)], [0]) == [0.5]
    assert result.surprises([None], [0]) == [None]


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"left_over": torch.zeros(0, 3)}, r"left_over must have axes \(t, d\) and at least one step; got shape"),
        ({"left_over": torch.zeros(4)}, r"left_over must have axes"),
        ({"left_over": torch.tensor([[0.0, torch.nan]])}, r"left_over must not contain NaN"),
        ({"left_over": torch.tensor([[0.0, torch.inf]])}, r"another action space"),
        (
            {"left_over": torch.tensor([[0.0, 57.3]])},
            r"within \+-20; got 57.3: were they made for another",
        ),
        ({"left_over": torch.zeros(2, 2), "delay": -1}, r"delay must be 0 or more steps; got -1"),
        ({"left_over": torch.zeros(2, 2), "schedule": "cubic"}, r"schedule must be one of fade, zeros, ones"),
    ],
)
def test_a_bad_handover_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Handover(**settings)


@pytest.mark.parametrize(
    ("handover", "message"),
    [
        (Handover(torch.zeros(3, 6)), r"left_over must have this policy's 7 action dimensions; got 6"),
        (Handover(torch.zeros(3, 7), delay=H), r"delay must lie in 0\.\.7, inside the chunk; got 8"),
    ],
)
def test_a_handover_that_does_not_fit_the_chunk_is_refused(handover, message):
    decoder, law, decoded = chunk()
    with pytest.raises(ValueError, match=message):
        hand_over(decoded, law, [handover], decoder)
