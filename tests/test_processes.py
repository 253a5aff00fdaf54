import os
import platform

import psutil
import pytest

from lerobot_policy_quantile.processes import give_back_memory, share_cores


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
