"""Conformal margins: the finite-sample quantile, against an independent library and on episodes of dependent frames."""

import math

import numpy as np
import pytest
import torch
from mapie.regression import ConformalizedQuantileRegressor
from sklearn.base import BaseEstimator, RegressorMixin

from lerobot_policy_quantile.core.conformal import (
    conformal_bounds,
    conformal_margin,
    conformity_scores,
    episodes_needed,
)
from lerobot_policy_quantile.core.decoders import canonical_text, parse_decoder
from lerobot_policy_quantile.core.episode import Episode
from lerobot_policy_quantile.core.levels import quantile_levels
from lerobot_policy_quantile.core.quantile_function import QuantileFunction

LEVELS = quantile_levels().double()


def normal_law(mean, deviation=1.0):
    knots = mean[..., None] + deviation * torch.special.ndtri(LEVELS)
    return QuantileFunction(LEVELS, knots)


def as_one_frame_episodes(scores):
    return [s[None] for s in scores], [torch.ones_like(s[None], dtype=torch.bool) for s in scores]


class Line(RegressorMixin, BaseEstimator):
    """Predicts its first feature plus an offset; already fitted."""

    def __init__(self, offset=0.0):
        self.offset = offset
        self.fitted_ = True

    def fit(self, x, y):
        return self

    def predict(self, x):
        return x[:, 0] + self.offset


@pytest.mark.parametrize("mass", [0.5, 0.8, 0.9, 0.95])
@pytest.mark.parametrize("episodes", [21, 40, 99])
def test_with_one_frame_per_episode_bounds_are_those_of_mapie(mass, episodes):
    draw = torch.Generator().manual_seed(episodes)
    mean = torch.randn(episodes, 2, generator=draw).double()
    target = mean + torch.tensor([0.4, 1.7]) * torch.randn(episodes, 2, generator=draw).double()
    law = normal_law(mean)
    margin = conformal_margin(*as_one_frame_episodes(conformity_scores(law, target, mass)), mass)
    low, high = conformal_bounds(normal_law(torch.zeros(1, 2).double()), margin, mass)
    half = float(law((1 + mass) / 2)[0, 0] - mean[0, 0])
    for d in range(2):
        lines = [Line(-half), Line(half), Line(0.0)]
        theirs = ConformalizedQuantileRegressor(lines, confidence_level=mass, prefit=True)
        theirs.conformalize(mean[:, d : d + 1].numpy(), target[:, d].numpy())
        _, interval = theirs.predict_interval(np.zeros((1, 1)), symmetric_correction=True)
        assert [float(low[0, d]), float(high[0, d])] == pytest.approx(interval[0, :, 0].tolist(), abs=1e-6)


@pytest.mark.parametrize("mass", [0.5, 0.8, 0.9, 0.95, 0.99, 2 / 3])
def test_the_number_of_episodes_needed_is_the_smallest_that_gives_a_finite_margin(mass):
    needed = episodes_needed(mass)
    for episodes, finite in ((needed, True), (needed - 1, False)):
        assert (math.ceil((episodes + 1) * mass - 1e-9) <= episodes) == finite
        if episodes:
            margin = conformal_margin(*as_one_frame_episodes(torch.arange(float(episodes))[:, None]), mass)
            assert bool(margin.isfinite()) == finite


def test_a_long_episode_counts_as_much_as_a_short_one():
    scores = [torch.zeros(1000, 1), *(torch.full((1, 1), float(n)) for n in range(1, 10))]
    valid = [torch.ones_like(s, dtype=torch.bool) for s in scores]
    assert float(conformal_margin(scores, valid, 0.8)) == 8.0  # ceil(11 * 0.8) = 9th of 0, 1, ..., 9


def test_frames_beyond_the_end_and_episodes_that_never_get_there_do_not_count():
    scores = [torch.tensor([[1.0, 9e9]]), torch.tensor([[2.0, 5.0]]), torch.tensor([[3.0, 6.0]])]
    valid = [torch.tensor([[True, False]]), torch.ones(1, 2, dtype=torch.bool), torch.ones(1, 2, dtype=torch.bool)]
    assert conformal_margin(scores, valid, 0.5).tolist() == [2.0, 6.0]


def test_a_frame_of_a_new_episode_is_inside_as_often_as_promised_though_frames_depend_on_each_other():
    """The law is too narrow by a factor and every episode has an offset of its own: pooled frames would be too few."""
    draw = torch.Generator().manual_seed(0)

    def episode():
        frames = int(torch.randint(1, 30, (), generator=draw))
        offset = torch.randn(1, 1, generator=draw) * (3.0 if frames < 5 else 1.0)
        return (offset + 0.3 * torch.randn(frames, 1, generator=draw)).double()

    shares = []
    for _ in range(60):
        known = [episode() for _ in range(19)]
        scores = [conformity_scores(normal_law(torch.zeros_like(y), 0.3), y, 0.8) for y in known]
        margin = conformal_margin(scores, [torch.ones_like(s, dtype=torch.bool) for s in scores], 0.8)
        for _ in range(20):
            new = episode()
            low, high = conformal_bounds(normal_law(torch.zeros_like(new), 0.3), margin, 0.8)
            shares.append(float(((low <= new) & (new <= high)).double().mean()))
    assert 0.78 < np.mean(shares) < 0.88


def test_a_negative_margin_never_turns_an_interval_inside_out():
    law = normal_law(torch.zeros(2, 1))
    low, high = conformal_bounds(law, torch.tensor([-100.0]), 0.8)
    assert torch.equal(low, high)
    assert torch.allclose(low, torch.zeros_like(low), atol=1e-6)


def test_a_decoder_told_to_stay_inside_does_and_others_do_not():
    law = normal_law(torch.zeros(1, 4, 3))
    margin = torch.full((4, 3), 0.1)
    low, high = conformal_bounds(law, margin, 0.5)
    free, kept = parse_decoder("independent"), parse_decoder("independent inside 0.5").with_margin(margin)
    actions = {name: [] for name in ("free", "kept")}
    for seed in range(30):
        actions["free"].append(free.decode(law, [Episode(seed)]).actions)
        decoded = kept.decode(law, [Episode(seed)])
        actions["kept"].append(decoded.actions)
        assert torch.allclose(law(decoded.ranks), decoded.actions, atol=1e-6)
    free_actions, inside = torch.cat(actions["free"]), torch.cat(actions["kept"])
    assert bool(((free_actions < low) | (free_actions > high)).any())
    assert bool(((inside >= low) & (inside <= high)).all())
    assert torch.equal(inside, free_actions.clamp(low, high))


def test_the_mass_to_stay_inside_is_part_of_a_decoders_text():
    assert canonical_text("median inside 0.90") == "median inside 0.9"
    assert parse_decoder("shared(l=0.1) inside 0.9").inside == 0.9
    with pytest.raises(ValueError, match=r"inside must be followed by the mass of bounds, as in median inside 0\.9"):
        parse_decoder("median inside 9")
    with pytest.raises(ValueError, match="needs conformal bounds beside the checkpoint; fit them with qhead calibrate"):
        parse_decoder("median inside 0.9").require_fits(4, 3)
