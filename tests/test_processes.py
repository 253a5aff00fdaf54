import mmap
import os
import platform
import subprocess
import sys
import time
from contextlib import contextmanager

import psutil
import pytest

from lerobot_policy_quantile.processes import MemoryWatch, give_back_memory, memory_held, share_cores


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


@contextmanager
def waiting(statements):
    """A child process that has run them and stays."""
    program = f"{statements}; print('ready', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"ready\n"
        yield
        child.communicate(b"\n")


def test_the_memory_of_workers_counts_while_they_live():
    before = memory_held()
    with MemoryWatch(seconds=0.01) as memory:
        with waiting("block = b'x' * 200_000_000"):
            held = memory_held()
            time.sleep(0.5)
        after = memory_held()
    assert held - before > 190e6
    assert held - after > 190e6
    assert memory.most - before > 190e6


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells proportional shares")
def test_pages_that_processes_share_count_once(tmp_path):
    """Parent and child both read all of one mapped file of 200 MB."""
    path = tmp_path / "pages"
    path.write_bytes(bytes(200_000_000))
    reads = f"import mmap; file = open({str(path)!r}); pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)"
    with path.open() as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as pages:
        before = memory_held()
        pages.find(b"x")
        alone = memory_held()
        with waiting(f"{reads}; pages.find(b'x')"):
            together = memory_held()
    assert alone - before > 190e6
    assert together - alone < 50e6
