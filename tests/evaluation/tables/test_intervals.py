"""Intervals against published values and by simulation, McNemar against the binomial law."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.interval_coverage import simulate
from lerobot_policy_quantile.evaluation.tables.intervals import (
    POOLED_LEVEL,
    Comparison,
    compare,
    effective_trials,
    over_seeds,
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


def test_one_model_has_wilsons_interval_and_no_seeds():
    assert over_seeds([0.9], [50]) == wilson(0.9, 50)


def test_seeds_that_differ_as_chance_would_are_pooled():
    """47, 45 and 46 of 50: s^2 = 4e-4, p(1-p)/n = 1.5e-3; twice the ratio is below the chi-square median 1.39."""
    found, pool = over_seeds([0.94, 0.90, 0.92], [50] * 3), wilson(0.92, 150, POOLED_LEVEL)
    assert (found.low, found.high) == pytest.approx((pool.low, pool.high))
    assert found.seeds == (0.90, 0.94)


def test_seeds_that_differ_more_have_a_student_interval_around_the_middle():
    """Rates 0.4, 0.5, 0.6 of a million episodes: s = 0.1, t(2) = 4.303, so t^2 s^2 / 3 = 0.0617 = q / 4 in Wilson's
    (p + q/2 +- sqrt(q/4 + q^2/4)) / (1 + q), which at p = 1/2 is 0.5 +- sqrt(q) / 2 / sqrt(1 + q)."""
    found, q = over_seeds([0.4, 0.5, 0.6], [10**6] * 3), 4 * 4.302653**2 * 0.01 / 3
    assert found.high - 0.5 == pytest.approx(math.sqrt(q) / 2 / math.sqrt(1 + q), rel=1e-3)
    assert found.low == pytest.approx(1 - found.high)


def test_three_perfect_seeds_are_not_certain():
    found = over_seeds([1.0] * 3, [50] * 3)
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(0.978, abs=1e-3)


def test_a_single_failure_is_no_difference_between_seeds():
    """It must fall on some seed."""
    assert over_seeds([0.98, 1.0, 1.0], [50] * 3).low > 0.96


@given(st.integers(1, 6), st.integers(1, 1000), st.data())
def test_an_interval_over_seeds_holds_its_mean_and_does_not_depend_on_the_order(seeds, trials, data):
    rates = [data.draw(st.integers(0, trials)) / trials for _ in range(seeds)]
    found, back = over_seeds(rates, [trials] * seeds), over_seeds(rates[::-1], [trials] * seeds)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert (found.low, found.high) == pytest.approx((back.low, back.high))


@pytest.mark.bad_input
@pytest.mark.parametrize(("rates", "trials"), [([], []), ([0.5], [1, 2]), ([0.5, 0.5], [10, 0])])
def test_an_interval_over_seeds_refuses_what_does_not_pair_up(rates, trials):
    with pytest.raises(ValueError, match="must pair up"):
        over_seeds(rates, trials)


def test_the_interval_over_three_seeds_covers_what_it_says():
    """A small part of docs/explanation/intervals.md; 2,000 methods per setting leave half a point of standard error."""
    cells = list(simulate(3, rates=(0.5, 0.9, 0.97), episodes=(50, 500), variations=(0.0, 0.2, 0.5), models=2000))
    assert len(cells) == 18
    for cell in cells:
        assert 0.92 < cell.ours < 0.98, cell
    assert sum(cell.ours for cell in cells) / 18 == pytest.approx(0.95, abs=0.01)
    assert max(cell.extremes for cell in cells) < 0.85


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
