"""`qhead eval --delay` as a user calls it."""

from importlib.resources import files

import numpy as np
import pytest

from lerobot_policy_quantile.evaluation.journal import read_rows
from lerobot_policy_quantile.evaluation.side_files import SideFiles
from tests.cli.test_eval import SHORT, folder, invoke, qhead

__all__ = ["folder"]


@pytest.mark.slow
def test_delays_and_handovers_are_policies_of_their_own_paired_and_kept_apart(folder, tmp_path):
    command = ("eval", "--policy", f"ours={folder}", "--indices", "0", *SHORT, "--replan", "fixed:3", "--out", tmp_path)
    ran = qhead(*command, "--delay", "0,4", "--handover", "pause,swap,ensemble,rank,rtc")
    assert ran.returncode == 0, ran.stderr
    rows = {row.key.policy: row for row in read_rows(tmp_path / "journal.sqlite")}
    assert set(rows) == {f"ours/{rule}-{delay}" for rule in ("pause", "swap", "ensemble", "rank") for delay in (0, 4)}
    assert all((row.status, row.steps) == ("failure", 12) for row in rows.values())
    assert len({row.first_action for row in rows.values()}) == 1, "the first chunk is the same whatever follows"
    assert rows["ours/rank-4"].versions["handover"] == "rank"
    assert "path jerk" in ran.stdout
    side = SideFiles(tmp_path / "side")
    swap, rank = (side.read(rows[f"ours/{rule}-4"].key) for rule in ("swap", "rank"))
    assert np.isfinite(rank["surprises"][1:]).all()
    assert (rank["seam_jumps"][0, :6] <= swap["seam_jumps"][0, :6] + 1e-6).all()

    compared = invoke(
        *("compare", tmp_path, tmp_path, "--policy-a", "ours/rank-4", "--policy-b", "ours/swap-4"),
    )
    assert "seam: A" in compared.output

    other = qhead(*command, "--delay", "4", "--handover", "rank", "--replan", "fixed:2")
    assert other.returncode == 1
    assert "is not what the journal was begun with" in other.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--delay", "10"), "--delay must lie in 0..9, inside the chunk of policy 'ours'; got 10"),
        (("--delay", "4", "--handover", "jump"), "--handover must be one of pause, swap, ensemble, rank, rtc"),
        (("--delay", "4", "--handover", "rtc"), "rtc the flow head, and its head is quantile; got rtc"),
        (("--handover", "rank"), "--handover needs --delay"),
        (("--delay", "4", "--replan", "adaptive:0.1"), "--replan must be fixed:N with --delay"),
        (("--delay", "4", "--no-side-files"), "--delay needs the side files"),
    ],
)
def test_wrong_usage_is_refused(tmp_path, options, message):
    base = files("lerobot_policy_quantile.policy") / "base"
    result = invoke("eval", "--policy", f"ours={base}", "--out", tmp_path / "out", *options)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
