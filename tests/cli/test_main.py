import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lerobot_policy_quantile.cli.main import app
from lerobot_policy_quantile.core.decoders import PRESETS
from lerobot_policy_quantile.core.theory import checks

QHEAD = Path(sys.executable).parent / "qhead"


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def test_verify_exits_zero_and_prints_one_table():
    """Through the installed command, as a user calls it."""
    result = subprocess.run([QHEAD, "verify"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    for word in ("claim", "theory says", "measured", "result", "Laplace", "outside"):
        assert word in result.stdout
    assert " 0 fail" in result.stdout


def test_verify_json_is_the_same_records():
    result = run("verify", "--json", "--seed", "3")
    records = json.loads(result.stdout)
    assert result.exit_code == 0
    assert [r["claim"] for r in records] == [c.claim for c in checks.run_checks(3)]
    assert set(records[0]) == {"claim", "paper", "theory", "measured", "status"}


@pytest.mark.parametrize("as_json", [False, True])
def test_verify_exits_non_zero_on_a_fail(monkeypatch, as_json):
    failed = checks.TheoryCheck("two and two", "Sec. 0", "4", "5", "fail")
    monkeypatch.setattr(checks, "run_checks", lambda seed: [failed])
    result = run("verify", *(["--json"] if as_json else []))
    assert result.exit_code == 1
    assert "two and two" in result.stdout


def test_decoders_lists_every_preset_and_explains_one():
    listing = json.loads(run("decoders", "--json").stdout)
    assert [row["decoder"].split("(")[0] for row in listing] == list(PRESETS)
    (row,) = json.loads(run("decoders", "shared(l=0.2)", "--json").stdout)
    assert row["decoder"] == "shared(l=0.2, rho=0.9)"
    assert row["composition"].startswith("Window(l=0.2, temperature=1.0) | shared")
    assert "[l, 1 - l]" in run("decoders").stdout.replace("\n", " ")


def test_a_wrong_decoder_is_a_usage_error_with_a_hint():
    result = run("decoders", "shraed")
    assert result.exit_code == 2
    assert "did you mean 'shared'" in " ".join(result.stderr.replace("│", " ").split())


def test_help_teaches():
    assert "outside" in run("verify", "--help").stdout
    for command in ("verify", "decoders"):
        assert command in run("--help").stdout
