"""One benchmark episode, three kinds of policy: expert, folder and server meet the same episode, and say so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lerobot_policy_quantile.adapters.served_policy import load_served_policy
from lerobot_policy_quantile.evaluation.journal import read_rows
from lerobot_policy_quantile.policy.base_checkpoint import base_checkpoint
from tests.support.running_server import running

QHEAD = Path(sys.executable).parent / "qhead"


@pytest.mark.slow
@pytest.mark.libero
def test_expert_folder_and_server_give_rows_with_the_same_keys(tmp_path):
    with running(load_served_policy(base_checkpoint())) as server:
        command = [QHEAD, "eval", "--suite", "libero_object", "--sample", "1", "--episodes", "1", "--limit", "7"]
        command += ["--camera-size", "64", "--workers", "1", "--out", tmp_path]
        command += ["--policy", "scripted", "--policy", f"folder={base_checkpoint()}", "--policy", f"far={server.url}"]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "MUJOCO_GL": "egl"}
        result = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment, timeout=900)
    assert result.returncode == 0, result.stderr
    rows = {row.key.policy: row for row in read_rows(tmp_path / "journal.sqlite")}
    assert sorted(rows) == ["far", "folder", "scripted"]
    episodes = {(row.key.scene, row.key.task, row.key.index, row.key.seed) for row in rows.values()}
    assert len(episodes) == 1
    assert {(row.status, row.steps) for row in rows.values()} == {("failure", 7)}
    assert rows["far"].hashes == rows["folder"].hashes, "the same weights must act alike on either side of a socket"
    assert rows["scripted"].hashes != rows["folder"].hashes
    assert "3 of 3 planned episodes have a result." in result.stdout
