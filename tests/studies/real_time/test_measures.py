"""Sides and surprise on paths and scores made by hand."""

import numpy as np
import pytest

from lerobot_policy_quantile.studies.real_time.measures import (
    Watched,
    changed_side,
    push_report,
    seam_report,
)

PLANE, AHEAD = np.array([1.0, 0.0, 0.0]), np.array([1.0, 0.0])


def path(*beside: float) -> np.ndarray:
    """From x = 0 past the plane at x = 1, this far beside the straight way."""
    return np.stack([np.linspace(0, 1.3, len(beside)), np.array(beside), np.zeros(len(beside))], axis=1)


def test_a_side_is_changed_between_fork_and_plane_only():
    assert changed_side(path(0, 0.005, -0.005, 0.05, 0.08, 0.08), PLANE, AHEAD) is False
    assert changed_side(path(0, 0.03, -0.03, -0.08, -0.08, -0.08), PLANE, AHEAD) is True
    assert changed_side(path(0, 0.03, 0.05, 0.08, 0.08, 0.08, -0.5), PLANE, AHEAD) is False, "beyond the plane"
    assert changed_side(path(0, 0, 0, 0, 0, 0), PLANE, AHEAD) is None
    assert changed_side(0.5 * path(0, 0.1, 0.1), PLANE, AHEAD) is None, "never passed"


def watched(*surprises: float) -> Watched:
    return Watched(np.arange(0, 5 * len(surprises), 5), np.array(surprises))


def test_surprise_after_a_push_is_held_against_the_same_episode_without_one():
    """Pushed at 7: queries at 10 to 25 count. Undisturbed surprise is at most 0.2; alarms at 10 and 15."""
    calm = [watched(np.nan, 0.1, 0.2, 0.1, 0.1, 0.1)] * 2
    pushed = [(7, watched(np.nan, 0.1, 0.9, 0.9, 0.9, 0.1)), (7, watched(np.nan, 0.1, 0.1, 0.9, 0.1, 0.1))]
    report = push_report(pushed, calm)
    assert (report.episodes, report.auroc, report.alarmed) == (2, 1.0, 1.0)
    assert report.median_steps == pytest.approx((3 + 8) / 2)


def test_episodes_without_a_push_are_left_out():
    calm = [watched(np.nan, 0.1, 0.1)]
    with pytest.raises(ValueError, match="pushed must hold episodes that went on after their push; got none of 1"):
        push_report([(-1, watched(np.nan, 0.5, 0.5))], calm)


def test_seams_inside_the_new_law_are_told_from_those_that_it_cuts_short():
    """Law from -1 to 1 around its median 0 in two motion coordinates. Old plans at 0.5 and 3 at the second step of the
    chunk; executed are 0.4 (a fifth of the way is jumped) and 1, the law's edge (two thirds of the way)."""
    law = np.tile(np.array([-1.0, 0.0, 1.0]), (1, 4, 3, 1))
    actions = np.zeros((5, 3))
    actions[3] = 0.4, 1.0, -1.0
    arrays = {
        "query_steps": np.array([2]),
        "quantiles": law,
        "actions": actions,
        "grippers": np.array([2]),
        "seam_steps": np.array([3]),
        "seam_jumps": np.array([[0.1, 2.0, 0.0]]),
    }
    found = seam_report([arrays], delay=1, median=1)
    assert (found.coordinates, found.inside) == (2, 0.5)
    assert (found.inside_ratio, found.outside_ratio) == pytest.approx((0.2, 2 / 3))
    inside = {**arrays, "seam_jumps": np.array([[0.1, 0.0, 0.0]])}
    assert seam_report([inside], delay=1, median=1).outside_ratio is None
    with pytest.raises(ValueError, match="must have a seam"):
        seam_report([{**arrays, "seam_steps": np.zeros(0, int), "seam_jumps": np.zeros((0, 3))}], 1, 1)
