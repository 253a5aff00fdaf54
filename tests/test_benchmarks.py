"""Benchmarks run to their end and name everything they promise; what they measure is theirs to judge."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lerobot_policy_quantile.core.decoders import PRESETS

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_every_decoder_has_a_row_in_the_speed_of_the_maths(tmp_path):
    command = [sys.executable, str(BENCHMARKS / "core_speed.py"), "--rounds", "2", "--out", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" not in run.stderr, run.stderr  # an exit code of 1 is a limit that a busy machine may miss
    names = [row["what"] for row in json.loads((tmp_path / "core_speed.json").read_text())["rows"]]
    assert not {f"decode a chunk, {name}, per episode" for name in PRESETS} - set(names)
