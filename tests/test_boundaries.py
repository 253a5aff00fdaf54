"""The maths stands alone, and its signatures say the truth about shapes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lerobot_policy_quantile
from tests.support.blocked_imports import BLOCKED

ROOT = Path(__file__).parent.parent
BLOCK = ("-p", "tests.support.blocked_imports")
CHECKED = "lerobot_policy_quantile.core,lerobot_policy_quantile.backbone,beartype.beartype"
CHECK_SHAPES = (f"--jaxtyping-packages={CHECKED}", "-m", "not bad_input")


def run_pytest(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": "."})


@pytest.mark.slow
def test_core_tests_pass_with_lerobot_and_simulators_unimportable():
    result = run_pytest(*BLOCK, "tests/core")
    assert result.returncode == 0, result.stdout[-2000:]
    assert " passed" in result.stdout


@pytest.mark.slow
def test_the_block_bites():
    """The twin: what needs LeRobot fails under the same block, and passes without it."""
    twin = "tests/support/needs_lerobot.py"
    blocked = run_pytest(*BLOCK, twin)
    assert blocked.returncode != 0
    assert "lerobot is blocked in this run" in blocked.stdout
    assert run_pytest(twin).returncode == 0


def test_core_imports_nothing_of_lerobot_a_simulator_or_the_command_line():
    code = "import sys, pkgutil, importlib, lerobot_policy_quantile.core as core\n"
    code += "[importlib.import_module(m.name) for m in pkgutil.walk_packages(core.__path__, core.__name__ + '.')]\n"
    code += "print(*{name.split('.')[0] for name in sys.modules})"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert "torch" in loaded
    assert not loaded & (BLOCKED | {"typer", "rich"})


@pytest.mark.slow
def test_shapes_hold_at_run_time():
    """Tests of the maths and of the backbone again, with every annotated shape checked at every call."""
    backbone = ("tests/backbone/test_attention.py", "tests/backbone/test_model.py")
    result = run_pytest(*CHECK_SHAPES, "tests/core", "--deselect", "tests/core/test_recovery.py", *backbone)
    assert result.returncode == 0, result.stdout[-4000:]


def test_the_shape_check_bites(tmp_path):
    """The twin: a call that contradicts a signature fails under the same check."""
    wrong = tmp_path / "test_wrong.py"
    wrong.write_text(
        "import torch\n"
        "from lerobot_policy_quantile.core.losses import keep_mask\n"
        "def test_wrong():\n"
        "    keep_mask(torch.ones(2, 3), 0.1, generator=torch.Generator())\n"  # float where bool is promised
    )
    result = run_pytest(*CHECK_SHAPES, str(wrong))
    assert result.returncode != 0
    assert "TypeCheckError" in result.stdout


def test_only_the_backbone_knows_lerobots_pi05_modules():
    package = Path(lerobot_policy_quantile.__file__).parent
    knowing = {
        file.relative_to(package).parts[0]
        for file in package.rglob("*.py")
        if re.search(r"lerobot\.policies\.(pi05|pi_gemma)", file.read_text())
    }
    assert knowing == {"backbone"}


@pytest.mark.parametrize("module", ["lerobot_policy_quantile", "lerobot_policy_quantile.core"])
def test_packages_import_quietly(module):
    result = subprocess.run([sys.executable, "-W", "error", "-c", f"import {module}"], capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
