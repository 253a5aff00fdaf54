import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from lerobot_policy_quantile.util.processes import give_back_memory, share_cores
from tests.support.memory_probe import BYTES

ROOT = Path(__file__).parents[2]


@pytest.fixture
def environment(monkeypatch):
    for name in ("OMP_NUM_THREADS", "LP_NUM_THREADS"):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    return monkeypatch


@pytest.mark.parametrize(("workers", "drawing"), [(3, None), (4, "0"), (5, "0")])
def test_pictures_are_drawn_without_threads_only_where_processes_take_all_cores(environment, workers, drawing):
    share_cores(workers)
    assert os.environ["OMP_NUM_THREADS"] == "1"
    assert os.environ.get("LP_NUM_THREADS") == drawing


def test_what_the_environment_says_stands(environment):
    environment.setenv("OMP_NUM_THREADS", "2")
    environment.setenv("LP_NUM_THREADS", "3")
    share_cores(8)
    assert (os.environ["OMP_NUM_THREADS"], os.environ["LP_NUM_THREADS"]) == ("2", "3")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be asked to give memory back")
def test_memory_that_is_free_again_goes_back_to_the_system():
    blocks = [bytearray(2000) for _ in range(100_000)]
    last = blocks.pop()  # at the end of the heap: what lies before it is not given back by itself
    blocks.clear()
    held = psutil.Process().memory_full_info().uss
    give_back_memory()
    assert held - psutil.Process().memory_full_info().uss > 100e6
    assert len(last) == 2000


def probe(*arguments: object) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.support.memory_probe", *map(str, arguments)]
    return json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


def test_the_memory_of_workers_counts_while_they_live():
    seen = probe("workers")
    assert seen["held"] - seen["before"] > 0.9 * BYTES
    assert seen["held"] - seen["after"] > 0.9 * BYTES
    assert seen["most"] - seen["before"] > 0.9 * BYTES


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells proportional shares")
def test_pages_that_processes_share_count_once(tmp_path):
    """Parent and child both read all of one mapped file."""
    seen = probe("pages", tmp_path / "pages")
    assert seen["alone"] - seen["before"] > 0.9 * BYTES
    assert seen["together"] - seen["alone"] < 0.25 * BYTES
