"""Worker processes do not outlive those who started them."""

import subprocess
import sys
import time

import psutil
import pytest

from lerobot_policy_quantile.util.pool import WorkerPool
from tests.support.waiting import PATIENCE, wait_until

SCRIPT = """
import time
from lerobot_policy_quantile.util.pool import WorkerPool
with WorkerPool(2) as crew:
    list(crew.each(time.sleep, [(600,), (600,)]))
"""


def test_workers_end_with_a_killed_parent():
    parent = subprocess.Popen([sys.executable, "-c", SCRIPT])
    try:
        family = psutil.Process(parent.pid)
        wait_until(lambda: sum(busy(child) for child in family.children()) == 2, "work")
        children = family.children()
    finally:
        parent.kill()
        parent.wait()
    wait_until(lambda: not any(child.is_running() and busy(child) for child in children), "the end of the workers")


def test_work_under_way_is_not_waited_for_after_an_error():
    began = time.monotonic()
    with pytest.raises(ValueError, match="a check failed"):
        fail_while_others_work()
    assert time.monotonic() - began < PATIENCE


def fail_while_others_work():
    with WorkerPool(2) as crew:
        for number, _ in crew.each(time.sleep, [(0,), (600,), (600,)]):
            raise ValueError(f"a check failed after piece {number}")


def busy(process: psutil.Process) -> bool:
    """A worker that has begun: the thread that watches its parent is there beside its main thread."""
    try:
        return "spawn_main" in " ".join(process.cmdline()) and process.num_threads() > 1
    except psutil.NoSuchProcess:
        return False
