"""The examples run: the Piper's loop with a simulated arm, the others as far as they go without their hardware."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lerobot_policy_quantile.cli.main import app
from lerobot_policy_quantile.evaluation.journal import read_rows
from tests.support.fake_model import FakeModel
from tests.support.running_server import running

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def test_the_piper_example_writes_one_row_per_trial_and_goes_on_after_a_break(tmp_path):
    with running(FakeModel()) as server:

        def piper(trials, words, task="fold"):
            command = [sys.executable, EXAMPLES / "piper.py", server.url, "--task", task, "--simulate"]
            command += ["--seconds", "1.0", "--trials", str(trials), "--out", tmp_path]
            return subprocess.run(command, input=words, capture_output=True, text=True, timeout=300)

        first = piper(2, "\ny\n\nmaybe\nn\n")
        assert first.returncode == 0, first.stderr
        again = piper(3, "\ny\n")
        other = piper(1, "\nn\n", task="wipe")
    assert again.returncode == 0, again.stderr
    assert other.returncode == 0, other.stderr
    rows = [row for row in read_rows(tmp_path / "journal.sqlite") if row.key.scene == "piper fold"]
    assert [(row.key.index, row.status) for row in rows] == [(0, "success"), (1, "failure"), (2, "success")]
    assert all(row.versions["policy"] == "fake" for row in rows)
    assert "66.7 %" in again.stdout
    table = CliRunner().invoke(app, ["table", str(tmp_path)], env={"COLUMNS": "300"})
    assert table.exit_code == 0, table.stderr
    named = [line.split("|")[1].strip() for line in table.stdout.splitlines() if line.startswith("| ")]
    assert named[2:5] == ["fold", "wipe", "Avg."]
    ours = [line.split("|")[2].split()[0] for line in table.stdout.splitlines() if line.startswith("| ")]
    assert ours[2:5] == ["66.7", "0.0", "33.3"]
    assert "paper, real-robot results" in table.stdout


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.sh")), ids=lambda path: path.name)
def test_shell_examples_are_sound_and_say_what_they_need(script):
    assert subprocess.run(["sh", "-n", script]).returncode == 0
    assert os.access(script, os.X_OK)
    told = subprocess.run([script], capture_output=True, text=True)
    assert told.returncode != 0
    assert "usage: " in told.stderr
