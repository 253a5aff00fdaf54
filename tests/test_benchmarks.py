"""Benchmarks run to their end and name everything they promise; what they measure is theirs to judge."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lerobot_policy_quantile.core.decoders import PRESETS

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def rows_of(script: str, name: str, out: Path, *options: str) -> list[str]:
    """What a benchmark measured; an exit code of 1 is a limit that a busy machine may miss."""
    command = [sys.executable, str(BENCHMARKS / script), "--rounds", "2", "--out", str(out), *options]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" not in run.stderr, run.stderr
    return [row["what"] for row in json.loads((out / f"{name}.json").read_text())["rows"]]


def test_every_decoder_has_a_row_in_the_speed_of_the_maths(tmp_path):
    names = rows_of("core_speed.py", "core_speed", tmp_path)
    assert not {f"decode a chunk, {name}, per episode" for name in PRESETS} - set(names)


def test_every_part_has_a_row_in_the_speed_of_the_policy(tmp_path):
    names = rows_of("policy_speed.py", "policy_speed_tiny_1", tmp_path, "--sizes", "tiny", "--threads", "1")
    for part in ("fast path", "whole chunk", "packed", "int8", "LeRobot in bfloat16", "training step"):
        assert any(name.startswith(part) for name in names), part
