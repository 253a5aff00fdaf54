import numpy as np
import pytest

from lerobot_policy_quantile.studies.two_demo.records import FirstDraws, load_study
from lerobot_policy_quantile.studies.two_demo.report.distributions import (
    BINS,
    ROTATION_MAGNIFIED,
    histograms_figure,
    spread_figure,
    units_per_command,
)
from lerobot_policy_quantile.util.quantiles import quantile_at

LEVELS = 0.025 + 0.95 * np.arange(21) / 20


def test_units_are_read_off_the_draws_and_unknown_where_nothing_differs():
    rng = np.random.default_rng(0)
    actions = {head: rng.normal(size=(50, 10, 7)) for head in ("quantile", "flow")}
    for values in actions.values():
        values[..., 4] = 0.25
    units = np.array([2.0, 3, 4, 5, 6, 7, 8])
    shift = np.arange(7.0)
    draws = FirstDraws(
        normalised={head: values * units + shift for head, values in actions.items()},
        actions=actions,
        demonstrations=np.zeros((2, 10, 7)),
        demonstrations_normalised=np.zeros((2, 10, 7)),
        levels=LEVELS,
        quantiles=np.zeros((10, 7, 21)),
    )
    found = units_per_command(draws)
    assert np.isnan(found[4])
    assert np.delete(found, 4) == pytest.approx(np.delete(units, 4))


def test_six_dimensions_with_four_heads_on_shared_bins_and_both_demonstrations(study_folder):
    (arm, _) = load_study(study_folder).arms
    figure = histograms_figure(arm)
    assert [panel.title for panel in figure.panels] == ["dx", "dy", "dz", "rotation x", "rotation y", "rotation z"]
    dy = figure.panels[1]
    text = dy.svg()
    for head in ("Quantile head", "L1", "L2", "Flow matching"):
        assert head in text
    assert text.count("constant<") == 2  # L1 and L2 are stems
    assert 'stroke="var(--left)"' in text
    assert 'stroke="var(--right)"' in text
    widths = {part.split('width="')[1].split('"')[0] for part in text.split("<rect ")[2:]}
    assert max(map(float, widths)) == pytest.approx((dy.right - dy.left) / BINS, abs=0.1)


def test_demonstrations_that_agree_are_marked_once_in_grey(study_folder):
    (arm, _) = load_study(study_folder).arms
    text = histograms_figure(arm).panels[3].svg()  # rotation x is zero in both
    assert 'stroke="var(--left)"' not in text
    assert 'stroke="var(--muted)"' in text


def test_rotations_are_drawn_five_times_larger_and_the_mean_comes_first(study_folder):
    (_, arm) = load_study(study_folder).arms
    mean, *dimensions = spread_figure(arm).panels
    assert mean.title == "mean over six"
    assert [panel.title for panel in dimensions][-1] == f"rotation z (x{ROTATION_MAGNIFIED})"
    scales = [panel.y.high for panel in dimensions]
    assert scales[:3] == [scales[0]] * 3
    assert scales[3:] == pytest.approx([scales[0] / ROTATION_MAGNIFIED] * 3)
    assert "closes" in mean.svg()


def test_the_mean_is_of_normalised_ranges(study_folder):
    (_, arm) = load_study(study_folder).arms
    mean = spread_figure(arm).panels[0]
    rollout = next(r for r in arm.rollouts if r.success and r.head == "quantile")
    low, high = (quantile_at(rollout.array("quantiles")[:, 0], LEVELS, end) for end in (0.0, 1.0))
    width = ((high - low)[:, :6] * np.array([2, 2, 2, 10, 10, 10])).mean(axis=1)
    assert mean.subtitle == f"widest {width.max():.2g} at step {10 * width.argmax()}"
