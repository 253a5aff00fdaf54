"""Freed buffers leave the process."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from pathlib import Path
from lerobot_policy_quantile.util.large_buffers import return_large_buffers

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4 / 1024

if sys.argv[1] == "yes":
    assert return_large_buffers()
first = [b"1" * (12 << 20) for _ in range(2)]
del first  # glibc now keeps buffers of this size in its heap
before = resident()
held = []
for _ in range(20):
    held += [b"1" * (12 << 20), b"1" * 100_000]  # a small one that stays on top of each large one
held = held[1::2]
print(round(resident() - before))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_large_buffers_are_returned_even_below_small_ones():
    kept = {
        answer: int(subprocess.check_output([sys.executable, "-c", PROGRAM, answer], text=True))
        for answer in ("yes", "no")
    }
    assert kept["yes"] < 20
    assert kept["no"] > 100, "the twin: without the setting they stay"
