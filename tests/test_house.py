"""The house around the code: installation, metadata, the lock file, and what LeRobot sees."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

import lerobot_policy_quantile
from scripts.check_gl import main as check_gl

ROOT = Path(__file__).parent.parent


def bootstrap(folder: Path, path: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a copy of scripts/bootstrap in a folder of its own, with nothing but the given PATH."""
    (folder / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "bootstrap", folder / "scripts")
    shutil.copy(ROOT / "requirements.lock", folder)
    environment = {"PATH": path, "HOME": str(folder), **variables}
    return subprocess.run(["/bin/sh", "scripts/bootstrap"], cwd=folder, env=environment, capture_output=True, text=True)


def tools_without_python(folder: Path) -> str:
    """A PATH with the shell tools that the script uses and no Python at all."""
    folder.mkdir()
    for tool in ("dirname", "sed", "touch"):
        (folder / tool).symlink_to(shutil.which(tool))
    return str(folder)


def test_a_missing_python_gives_one_sentence_that_says_what_to_install(tmp_path):
    result = bootstrap(tmp_path / "clone", tools_without_python(tmp_path / "bin"))
    assert result.returncode == 1
    (sentence,) = result.stderr.splitlines()
    assert "needs Python 3.12 or newer" in sentence
    assert "apt-get install python3.12-venv" in sentence
    assert not (tmp_path / "clone" / ".venv").exists()


def test_an_old_python_is_passed_over(tmp_path):
    path = tools_without_python(tmp_path / "bin")
    old = tmp_path / "bin" / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")  # what sys.exit(version < 3.12) gives
    old.chmod(0o755)
    result = bootstrap(tmp_path / "clone", path)
    assert result.returncode == 1
    assert "needs Python 3.12 or newer" in result.stderr


def test_missing_gl_gives_one_sentence_and_stops_nothing(capsys):
    check_gl(("libEGL-not-there.so.1", "libOSMesa-not-there.so.8"))
    message = capsys.readouterr().err
    if sys.platform == "linux":
        assert len(message.splitlines()) == 1
        assert "apt-get install libegl1" in message


def test_present_gl_is_silent(capsys):
    check_gl(("libc.so.6",))
    assert capsys.readouterr().err == ""


def test_the_lock_pins_every_package_and_names_no_address():
    text = (ROOT / "requirements.lock").read_text()
    assert not re.search(r"https?://|--index|--find-links|file:", text)
    pins = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    assert all(re.match(r"[\w.-]+(\[[\w,-]+\])?==[\w.!+]+", line) for line in pins)


def test_installed_versions_are_the_locked_ones():
    locked = dict(re.findall(r"^([\w.-]+)==([\w.!+]+)", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE))
    for name in ("torch", "lerobot", "jaxtyping", "typer"):
        assert version(name).split("+")[0] == locked[name]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [Path(sys.executable).parent / "uv", "build", "--wheel", "--no-build-isolation", "--out-dir", out, ROOT]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "VIRTUAL_ENV": sys.prefix})
    return next(out.glob("*.whl"))


def test_the_wheel_keeps_the_underscores_of_its_name(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [n for n in names if n.endswith(".dist-info/METADATA")]
        lines = archive.read(metadata).decode().splitlines()
    assert "Name: lerobot_policy_quantile" in lines
    assert f"Version: {lerobot_policy_quantile.__version__}" in lines
    assert "lerobot_policy_quantile/py.typed" in names
    assert any(n.endswith("licenses/LICENSE") for n in names)
    assert not any(n.startswith(("tests", "benchmarks", "scripts")) for n in names)


def test_lerobot_finds_the_distribution_by_its_name():
    """LeRobot's own discovery imports every installed distribution with this prefix."""
    code = (
        "import sys\n"
        "from lerobot.utils.import_utils import register_third_party_plugins\n"
        "assert 'lerobot_policy_quantile' not in sys.modules\n"
        "register_third_party_plugins()\n"
        "assert 'lerobot_policy_quantile' in sys.modules\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_ci_calls_the_readmes_test_command():
    assert "make test" in map(str.strip, (ROOT / ".ci" / "run").read_text().splitlines())


def test_make_help_lists_every_documented_target():
    listing = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), flags=re.MULTILINE):
        assert f"make {target}" in listing


def test_no_code_that_only_we_can_look_up():
    """The paper's sections, equations, tables and figures are named; no number of a list of our own."""
    folders = [ROOT / name for name in ("src", "tests", "docs", "scripts", "benchmarks", "examples")]
    everything = [*ROOT.glob("*"), *(path for folder in folders for path in folder.rglob("*"))]
    texts = [path for path in everything if path.suffix in (".py", ".md", ".toml", ".j2")]
    found = {path.name for path in texts if re.search(r"(?<![\w#])M[0-9]{1,2}\b", path.read_text())}
    assert texts
    assert found - {Path(__file__).name} == set()
