"""Intervals against published values, the bootstrap against its definition, McNemar against the binomial law."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lerobot_policy_quantile.evaluation.statistics import (
    Comparison,
    bootstrap_mean,
    compare,
    effective_trials,
    wilson,
)


def test_wilson_equals_newcombes_worked_examples():
    """Newcombe 1998, table I: 81/263 -> 0.2553..0.3662, 15/148 -> 0.0624..0.1605, 0/20 -> 0..0.1611, 1/29."""
    for wins, trials, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        found = wilson(wins / trials, trials)
        assert (round(found.low, 4), round(found.high, 4)) == (low, high)


@given(st.integers(1, 10**6), st.data())
def test_wilson_holds_the_rate_and_shrinks_with_trials(trials, data):
    rate = data.draw(st.integers(0, trials)) / trials
    found, more = wilson(rate, trials), wilson(rate, 4 * trials)
    assert 0 <= found.low <= rate <= found.high <= 1
    assert more.width < found.width


@pytest.mark.bad_input
@pytest.mark.parametrize(("rate", "trials"), [(1.1, 10), (-0.1, 10), (0.5, 0)])
def test_wilson_refuses_what_is_no_rate(rate, trials):
    with pytest.raises(ValueError, match="must"):
        wilson(rate, trials)


def test_equal_groups_are_worth_their_sum_and_unequal_ones_less():
    assert effective_trials([1] * 10, [5] * 10) == pytest.approx(50)
    assert effective_trials([1, 1], [10, 1000]) == pytest.approx(4 / (1 / 10 + 1 / 1000))


def test_bootstrap_of_three_seeds_counts_every_resample_once():
    """One of the 27 resamples is the lowest seed three times: 1/27 > 2.5 %, so the ends are the extreme seeds."""
    found = bootstrap_mean([0.9, 0.95, 0.97])
    assert (found.value, found.low, found.high) == pytest.approx((2.82 / 3, 0.9, 0.97))
    five = bootstrap_mean([0.0, 0.0, 0.0, 0.0, 1.0])  # binomial(5, 0.2): P(0) = 0.33, P(<= 3) = 0.993, P(<= 2) = 0.94
    assert (five.low, five.high) == pytest.approx((0.0, 0.6))
    assert bootstrap_mean([0.5] * 9) == bootstrap_mean([0.5])


def test_bootstrap_of_many_seeds_is_close_to_the_normal_interval():
    values = list(np.random.default_rng(1).normal(0.8, 0.02, size=200))
    found = bootstrap_mean(values)
    assert found.width == pytest.approx(2 * 1.96 * np.std(values) / math.sqrt(200), rel=0.05)
    assert found == bootstrap_mean(values)


def test_mcnemar_is_a_fair_coin_on_the_discordant_pairs():
    """Two-sided exact: 1 against 9 of ten tosses has probability 2 * (1 + 10) / 1024."""
    assert Comparison(50, 9, 1, 40).p_value == pytest.approx(22 / 1024)
    assert Comparison(50, 5, 5, 40).p_value == 1.0
    assert Comparison(5, 0, 0, 5).p_value == 1.0
    assert 0 < Comparison(0, 3000, 2000, 0).p_value < 1e-40


def test_the_sentence_says_who_is_better_where():
    pairs = [(True, True)] * 3 + [(True, False)] * 12 + [(False, True)] + [(False, False)] * 4
    sentence = compare(pairs).sentence("ours", "theirs")
    assert "ours is better on 12, theirs on 1; alike on 7 (3 both succeed, 4 both fail) of 20 episodes" in sentence
    assert "p = 0.00342: a difference" in sentence
    assert "not a difference" in compare([(True, False)]).sentence()
