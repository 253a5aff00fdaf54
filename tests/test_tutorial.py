"""Tutorial and first steps, typed as they stand but smaller: data, training, calibration, closed loop, server."""

import os
import subprocess
from pathlib import Path

import pytest

from scripts.serving_process import serving
from tests.support.command_line import BIN, PATIENCE, environment
from tests.support.pages import DOCS, TUTORIAL, blocks, command_lines, words

GETTING_STARTED = DOCS / "getting_started.md"
SMALLER = {
    TUTORIAL: {
        "SIZE = 96": "SIZE = 32",
        "range(8), range(8, 12)": "range(2), range(2, 3)",
        'Route("straight"))': 'Route("straight"), limit=15)',
        "--batch_size=16 --steps=500 --log_freq=50": "--batch_size=4 --steps=2 --log_freq=1",
        "--camera-size 96 --indices 12-19": "--camera-size 32 --indices 2 --limit 12 --no-video",
        "--size 96": "--size 32 --requests 2",
    },
    GETTING_STARTED: {
        "qhead collect --camera-size 96": "qhead collect --camera-size 32",
        "--batch_size=16 --steps=200 --log_freq=20": "--batch_size=4 --steps=2 --log_freq=1",
        "--camera-size 96 --indices 0-3": "--camera-size 32 --indices 0 --limit 12 --no-video",
    },
}
"""What a page says -> what is run here."""
NOT_HERE = ("pip ", "make ", "qhead doctor")
"""Commands that install something, or run in tests of their own."""
ADDRESS = "ws://127.0.0.1:8000"


@pytest.mark.parametrize("page", SMALLER, ids=lambda page: page.stem)
def test_what_is_made_smaller_is_in_the_page(page):
    said = "\n".join([*command_lines(page), *(block.code for block in blocks(page, "python"))])
    assert [old for old in SMALLER[page] if said.count(old) != 1] == []


def test_the_tutorials_scripts_are_the_ones_it_runs():
    run = {words(line)[1] for line in command_lines(TUTORIAL) if line.startswith("python ")}
    assert {block.title for block in blocks(TUTORIAL, "python")} == run


@pytest.fixture(scope="module", params=SMALLER, ids=lambda page: page.stem)
def typed(request, tmp_path_factory) -> tuple[Path, Path, dict[str, str]]:
    """The page, the folder in which somebody typed all its commands in turn, and what each printed."""
    page, folder = request.param, tmp_path_factory.mktemp("reader")
    for block in blocks(page, "python"):
        (folder / block.title).write_text(smaller(page, block.code))
    lines = [smaller(page, line) for line in command_lines(page) if not line.startswith(NOT_HERE)]
    *before, serve, client = lines
    printed = {line: run(line, folder) for line in before}
    program, command, flag, policy, *options = words(serve)
    assert (program, command, flag) == ("qhead", "serve", "--policy")
    with serving(folder / policy, *options) as server:
        printed[client] = run(client.replace(ADDRESS, server.url), folder)
    return page, folder, printed


def smaller(page: Path, text: str) -> str:
    for old, new in SMALLER[page].items():
        text = text.replace(old, new)
    return text


def run(line: str, folder: Path) -> str:
    variables = environment(PATH=f"{BIN}{os.pathsep}{os.environ['PATH']}", COLUMNS="200")
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=variables, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout + done.stderr


@pytest.mark.slow
def test_every_command_of_the_page_runs(typed):
    page, _, printed = typed
    text = "\n".join(printed.values())
    assert "coverage_80:" in text  # LeRobot's log
    assert "shared(l=0.2, rho=0.9)" in text  # the closed loop's table
    assert "actions          (10, 7)" in printed[list(printed)[-1]]
    if page == TUTORIAL:
        for figure in ("inside the central 80% interval", "PIT, share in each tenth", "CRPS", "pinball skill"):
            assert figure in printed["python calibrate.py"]
