"""AUROC: pairs, ties, groups, and intervals of differences."""

import numpy as np
import pytest

from lerobot_policy_quantile.calibration.auroc import auroc, auroc_difference, auroc_interval

FAILED = np.array([False, False, True, True])


def test_auroc_counts_pairs_and_ties_half():
    assert auroc(np.array([1.0, 2.0, 2.0, 3.0]), FAILED) == 7 / 8
    assert np.isnan(auroc(np.ones(2), np.ones(2, dtype=bool)))


def test_only_pairs_of_one_group_count():
    """Group 1 scores higher and fails more often; inside a group the score says the opposite of the truth."""
    scores, groups = np.array([1.0, 2.0, 3.0, 0.0, 14.0, 10.0, 11.0, 12.0]), np.repeat([0, 1], 4)
    failed = np.array([False, False, False, True, False, True, True, True])
    assert auroc(scores, failed) > 0.5
    assert auroc(scores, failed, groups) == 0
    assert np.isnan(auroc(np.array([1.0, 2.0]), np.array([False, True]), np.array([0, 1]))), "no pair is left"


def test_the_interval_holds_the_value_and_narrows_with_episodes():
    rng = np.random.default_rng(0)

    def width(count):
        failed = np.arange(count) % 2 == 0
        found = auroc_interval(rng.normal(size=count) + failed, failed, np.arange(count) % 4 // 2)
        assert found["low"] < found["value"] < found["high"]
        return found["high"] - found["low"]

    assert width(400) < 0.6 * width(40)


def test_a_difference_of_scores_that_move_together_is_known_better_than_either():
    rng = np.random.default_rng(1)
    failed = np.arange(120) % 2 == 0
    ours = rng.normal(size=120) + failed
    theirs = ours + 0.1 * rng.normal(size=120)
    found, alone = auroc_difference(ours, theirs, failed), auroc_interval(ours, failed)
    assert found["value"] == pytest.approx(auroc(ours, failed) - auroc(theirs, failed), abs=1e-6)
    assert found["high"] - found["low"] < 0.5 * (alone["high"] - alone["low"])
    assert auroc_difference(ours, ours, failed) == {"value": 0.0, "low": 0.0, "high": 0.0}
