"""Tallies are sums of what the maths says; intervals are those of whole episodes drawn again."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lerobot_policy_quantile.calibration.baselines import BASELINES, fit_baselines
from lerobot_policy_quantile.calibration.held_out import chunks
from lerobot_policy_quantile.calibration.predictions import EpisodeLaw
from lerobot_policy_quantile.calibration.scores import Bootstrap, score_record
from lerobot_policy_quantile.calibration.tallies import MASSES, Tally, tally
from lerobot_policy_quantile.core import calibration
from lerobot_policy_quantile.core._normal import phi_inverse
from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.core.quantile_function import QuantileFunction

LEVELS = quantile_levels()


def normal_law(rng, frames=40, steps=3, dims=2, *, scale=1.0, shift=0.0) -> EpisodeLaw:
    """Standard normal actions, and a normal law around zero; the last frame's later steps are padding."""
    actions = (rng.normal(size=(frames, steps, dims)) + shift).astype(np.float32)
    valid = np.ones((frames, steps), dtype=bool)
    valid[-1, 1:] = False
    knots = scale * phi_inverse(LEVELS.double()).numpy()
    return EpisodeLaw(0, np.arange(frames), actions, np.broadcast_to(knots, (*actions.shape, len(knots))), valid)


def record_of(laws, **settings):
    tallies = Tally.stacked([tally(law, LEVELS) for law in laws])
    return score_record(
        tallies, {"itself": tallies}, np.array([2.0, 10.0]), Bootstrap(len(laws)), **{"distribution": True, **settings}
    )


@given(st.integers(0, 10_000), st.floats(0.2, 3))
def test_a_tally_sums_what_the_maths_says_of_each_coordinate(seed, scale):
    law = normal_law(np.random.default_rng(seed), frames=9, scale=scale)
    found = tally(law, LEVELS)
    quantiles = QuantileFunction(LEVELS.double(), torch.tensor(law.quantiles))
    target = torch.tensor(law.actions).double()
    valid = torch.tensor(law.valid)[..., None].expand(target.shape)
    count = found.count.sum()
    assert count == int(valid.sum())
    torch.testing.assert_close(
        torch.tensor(found.hits.sum((0, 1)) / count), calibration.level_coverage(quantiles, target, valid)
    )
    for number, mass in enumerate(MASSES):
        inside = calibration.interval_coverage(quantiles, target, valid, mass)
        assert found.inside[number].sum() / count == pytest.approx(float(inside), abs=1e-6)
        width = calibration.interval_width(quantiles, valid, mass)
        assert found.width[number].sum() / count == pytest.approx(float(width))
    assert found.crps.sum() == pytest.approx(float(calibration.crps(quantiles, target)[valid].sum()))
    assert found.pit.sum() == count


def test_padding_does_not_count_whatever_it_holds():
    law = normal_law(np.random.default_rng(0))
    before = tally(law, LEVELS)
    law.actions[-1, 1:] = 1e6
    after = tally(law, LEVELS)
    for name in ("count", "crps", "pinball", "distance", "hits", "inside", "width", "pit"):
        np.testing.assert_array_equal(getattr(before, name), getattr(after, name))
    assert before.count[0, 0] == before.count[1, 0] + 1


def test_a_true_law_is_covered_and_flat_and_a_narrow_one_is_neither():
    """12 episodes of 119 coordinates in each of two dimensions: standard error of a share at most 0.01."""
    rng = np.random.default_rng(1)
    honest = record_of([normal_law(rng) for _ in range(12)])
    assert np.abs(np.array(honest["coverage"]["value"]) - LEVELS.numpy()).max() < 0.04
    assert np.abs(np.array(honest["pit"]["value"]) - 1).max() < 0.35
    assert np.mean(honest["pit"]["value"]) == pytest.approx(1)
    narrow = record_of([normal_law(rng, scale=0.5) for _ in range(12)])
    (eighty,) = [i for i in narrow["intervals"] if i["mass"] == 0.8]
    assert eighty["coverage"]["value"] < 0.6
    assert narrow["pit"]["value"][0] > 2
    assert narrow["pit"]["value"][-1] > 2


def test_widths_are_given_in_both_units():
    found = record_of([normal_law(np.random.default_rng(0)) for _ in range(3)])
    (eighty,) = [i for i in found["intervals"] if i["mass"] == 0.8]
    normalised = eighty["width"]["by_dimension"]["value"]
    assert eighty["width_in_robot_units"] == pytest.approx([2 * normalised[0], 10 * normalised[1]], rel=1e-4)


def test_a_point_has_errors_and_skill_only():
    law = normal_law(np.random.default_rng(0))
    point = EpisodeLaw(0, law.frames, law.actions, np.zeros_like(law.quantiles), law.valid)
    tallies = Tally.stacked([tally(point, LEVELS)] * 2)
    found = score_record(tallies, {}, np.ones(2), Bootstrap(2), distribution=False)
    assert found["crps"]["value"] == found["absolute_error"]["value"]
    assert found["crps"]["value"] == pytest.approx(
        np.abs(law.actions[np.broadcast_to(law.valid[..., None], law.actions.shape)]).mean(), rel=1e-5
    )
    assert not {"coverage", "intervals", "pit"} & found.keys()


# --- bootstrap --------------------------------------------------------------------------------


def test_intervals_know_that_frames_of_an_episode_hang_together():
    """Ten episodes that are wholly covered or not at all: the share 1/2 is known to about 0.16, not to 0.005."""
    top = np.array([1000.0, 0] * 5)
    found = Bootstrap(10).ratio(top, np.full(10, 1000.0))
    assert found.value == 0.5
    assert found.low == pytest.approx(0.2, abs=0.11)
    assert found.high == pytest.approx(0.8, abs=0.11)


def test_intervals_hold_a_mean_nineteen_times_in_twenty():
    """500 means of 30 normal episodes; percentile intervals of 30 cover about 0.94, standard error 0.011."""
    rng = np.random.default_rng(0)
    bootstrap = Bootstrap(30, resamples=500)
    values = rng.normal(size=(30, 500))
    found = bootstrap.ratio(values, np.ones((30, 500)))
    assert 0.89 < np.mean((found.low <= 0) & (found.high >= 0)) < 0.98


def test_a_single_episode_has_values_and_no_interval():
    found = record_of([normal_law(np.random.default_rng(0))])
    assert found["crps"]["low"] is None
    assert found["coverage"]["by_step"]["high"] is None
    assert found["skill"]["itself"] == {"value": 0.0, "low": None, "high": None}


def test_a_law_has_no_skill_over_itself_in_any_resample():
    found = record_of([normal_law(np.random.default_rng(seed)) for seed in range(5)])
    assert found["skill"]["itself"] == {"value": 0.0, "low": 0.0, "high": 0.0}


def test_too_few_resamples_are_refused():
    with pytest.raises(ValueError, match="resamples must be at least 100 for an interval of 95 %; got 20"):
        Bootstrap(5, resamples=20)


# --- baselines --------------------------------------------------------------------------------


def a_law_of(actions, chunk_size) -> EpisodeLaw:
    frames = np.arange(len(actions))
    target, valid = chunks(actions, frames, chunk_size)
    return EpisodeLaw(0, frames, target, np.zeros((*target.shape, len(LEVELS))), valid)


def test_baselines_of_a_ramp():
    """Actions 0, 1, 2, ...: the action h steps on is exactly h + 1 above the last one, so persistence is a point."""
    ramp = np.arange(30.0)[:, None]
    fitted = fit_baselines([ramp, ramp], 3, LEVELS)
    np.testing.assert_allclose(fitted.errors[:, 0], np.arange(1.0, 4)[:, None] * np.ones(len(LEVELS)))
    np.testing.assert_allclose(fitted.constant[0], np.quantile(np.concatenate([ramp, ramp]), LEVELS.numpy()), rtol=1e-6)
    laws = fitted.laws(a_law_of(ramp, 3), ramp)
    assert tuple(laws) == BASELINES
    scores = {name: tally(law, LEVELS) for name, law in laws.items()}
    later = EpisodeLaw(0, *(getattr(laws["persistence"], n)[1:] for n in ("frames", "actions", "quantiles", "valid")))
    assert tally(later, LEVELS).crps.sum() == pytest.approx(0, abs=1e-5)
    np.testing.assert_allclose(laws["persistence"].quantiles[0, 0], fitted.constant)  # nothing came before
    assert scores["persistence"].pinball.sum() < scores["constant"].pinball.sum() <= scores["gaussian"].pinball.sum()


def test_an_episode_of_one_frame_and_steps_never_reached_are_no_harm():
    fitted = fit_baselines([np.ones((1, 2)), np.zeros((2, 2))], 5, LEVELS)
    assert np.isfinite(fitted.errors).all()
    alone = fit_baselines([np.ones((1, 2))], 5, LEVELS)
    assert not alone.errors.any()
