"""Seams and jerk from side files."""

import numpy as np
import pytest

from lerobot_policy_quantile.evaluation.journal import Row
from lerobot_policy_quantile.evaluation.plan import EpisodeKey
from lerobot_policy_quantile.evaluation.side_files import SideFiles, Trace
from lerobot_policy_quantile.evaluation.tables.motion import motion_of, motion_table, paired_motion


def episode(files: SideFiles, index: int, *, jump: float = 0.5, policy: str = "ours/rank-4") -> Row:
    """Six steps; the first coordinate's third difference is 6, the hand's path 0.001 t^3 metres at 20 Hz."""
    key = EpisodeKey("embedded", 0, index, 0, policy, "median")
    steps = np.arange(6.0)
    actions = np.stack([steps**3, np.zeros(6), steps % 2], axis=1)
    states = np.zeros((7, 8))
    states[:, 0] = 0.001 * np.arange(7.0) ** 3
    trace = Trace(list(actions), list(states), [0] * 6, [0, 3])
    trace.seams = {
        "seam_steps": np.array([3]),
        "seam_jumps": np.array([[jump, 0.1, 9.0]]),
        "surprises": np.array([np.nan, 0.25]),
        "standing": np.array(2),
        "grippers": np.array([2]),
    }
    files.write(key, trace)
    versions = {"handover": "rank", "delay": "4"}
    return Row(key, "success", 1, 6, 0.3, 1.0, None, 0, None, versions, {}, None, None)


def test_measures_leave_the_gripper_out(tmp_path):
    files = SideFiles(tmp_path, video=False)
    motion = motion_of(episode(files, 0), files)
    assert motion.seam == pytest.approx((0.5 + 0.1) / 2)
    assert motion.action_jerk == pytest.approx(6.0**2 / 2)
    assert motion.path_jerk == pytest.approx((0.006 * 20**3) ** 2 / 3)
    assert (motion.standing, motion.seconds, motion.surprise) == (2, 0.3, 0.25)


def test_the_table_has_a_line_per_policy_and_nothing_for_runs_without_delay(tmp_path):
    files = SideFiles(tmp_path, video=False)
    rows = [episode(files, index, jump=0.4 + 0.1 * index) for index in range(3)]
    lines = motion_table(rows, files).splitlines()
    assert lines[0].split()[:5] == ["scene", "policy", "decoder", "episodes", "success"]
    assert "ours/rank-4" in lines[1]
    assert "0.3 [0.176, 0.424]" in lines[1], "mean 0.3, sd 0.05, t(2) = 4.303"
    others = [episode(files, index, policy="ours/swap-4") for index in range(3)]
    names = [line.split()[1] for line in motion_table([*rows, *others], files).splitlines()[1:3]]
    assert names == ["ours/rank-4", "ours/swap-4"], "one line each, whatever the order of the episodes"
    plain = [Row(**{**vars(row), "versions": {}}) for row in rows]
    assert motion_table(plain, files) == ""
    assert motion_table(rows, None) == ""


def test_differences_are_paired(tmp_path):
    files = SideFiles(tmp_path, video=False)
    sides = [
        {
            (0, index): motion_of(episode(files, index, jump=base + 0.3 * index, policy=policy), files)
            for index in range(3)
        }
        for base, policy in ((0.1, "ours/rank-4"), (0.5, "ours/swap-4"))
    ]
    lines = paired_motion(*sides)
    assert lines[0].startswith("seam: A 0.25, B 0.45; A - B -0.2 [-0.2, -0.2] on 3 episodes")
