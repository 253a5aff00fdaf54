"""What a test needs beyond the repository is marked, or the test fails, whatever lies on this machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.needs import NEEDS, SLOW, hidden

ROOT = Path(__file__).parent.parent
ASSETS = "assets.find_assets()"
TOUCH = {
    "libero": ASSETS,
    "plus": "assets.find_data('plus')",
    "pro": "assets.find_data('pro')",
    "browser": "browser.find_chromium()",
}
IMPORTS = "import pytest\nfrom lerobot_policy_quantile.scenes.libero import assets\nfrom tests.support import browser\n"
CHILD = f"""
import subprocess, sys
def test_child():
    code = "from lerobot_policy_quantile.scenes.libero import assets; {ASSETS}"
    subprocess.run([sys.executable, "-c", code], check=True)
"""
FIXTURE = f"""
@pytest.fixture(scope="module")
def found():
    return {ASSETS}
def test_fixture(found):
    pass
"""


@pytest.fixture
def everything(tmp_path):
    """The environment of a machine where everything is there."""
    data = tmp_path / "data"
    mark = data / "assets" / "scenes" / "libero_floor_base_style.xml"
    for folder in (mark.parent, data / "plus", data / "pro"):
        folder.mkdir(parents=True)
    mark.touch()
    return {NEEDS["libero"].variable: str(data), NEEDS["browser"].variable: sys.executable}


def run(folder: Path, code: str, environment: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    path = folder / "test_sample.py"
    path.write_text(IMPORTS + code)
    plugins = ("-p", "tests.support.needs", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", *plugins, "-c", str(ROOT / "pyproject.toml"), str(path), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, **environment})


def test_without_its_marker_a_test_finds_nothing_even_where_it_is(tmp_path, everything):
    code = "".join(f"def test_{name}():\n    {touch}\n" for name, touch in TOUCH.items()) + CHILD + FIXTURE
    result = run(tmp_path, code, everything)
    assert f"{len(TOUCH) + 1} failed, 1 error" in result.stdout, result.stdout


def test_with_its_marker_a_test_finds_what_is_there(tmp_path, everything):
    code = "".join(f"@pytest.mark.{name}\ndef test_{name}():\n    {touch}\n" for name, touch in TOUCH.items())
    code += (CHILD + FIXTURE).replace("def test_", "@pytest.mark.libero\ndef test_")
    result = run(tmp_path, code, everything)
    assert f"{len(TOUCH) + 2} passed" in result.stdout, result.stdout


def test_what_is_missing_is_left_out_and_told_once_with_the_command_that_gets_it(tmp_path):
    code = "".join(f"@pytest.mark.{name}\ndef test_{name}():\n    {touch}\n" for name, touch in TOUCH.items())
    code += FIXTURE.replace("def test_", "@pytest.mark.libero\ndef test_")
    code += "@pytest.mark.slow\ndef test_slow():\n    pass\n"
    nothing = dict.fromkeys((need.variable for need in NEEDS.values()), "none")
    result = run(tmp_path, code, nothing)
    lines = result.stdout.splitlines()
    begin = next(number for number, line in enumerate(lines) if "6 tests left out" in line)
    told = [line for line in lines[begin + 1 : -1] if line]
    assert result.returncode == 0
    assert "6 skipped" in lines[-1]
    assert len(told) == len(NEEDS) + 1
    for need, count in zip(NEEDS.values(), (2, 1, 1, 1), strict=True):
        assert any(line.split()[0] == str(count) and need.what in line and need.command in line for line in told)
    assert any(line.split() == ["1", SLOW, "make", "test-all"] for line in told)
    assert "5 skipped" in run(tmp_path, code, nothing, "--slow").stdout


def test_hiding_is_undone(monkeypatch):
    monkeypatch.setenv("QHEAD_A", "before")
    monkeypatch.delenv("QHEAD_B", raising=False)
    with hidden({"QHEAD_A", "QHEAD_B"}):
        assert (os.environ["QHEAD_A"], os.environ["QHEAD_B"]) == ("none", "none")
    assert os.environ["QHEAD_A"] == "before"
    assert "QHEAD_B" not in os.environ
