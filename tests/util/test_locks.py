"""Locks of files: a copy that a killed process left for a moment is waited for, a holder that stays is not."""

import fcntl
import os
import subprocess
import sys
import time

import pytest

from lerobot_policy_quantile.util.locks import acquire


def test_a_copy_of_the_lock_that_a_starting_child_has_is_waited_for(tmp_path):
    """The child has the descriptor, as between fork and exec; its parent has let go."""
    with (tmp_path / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        child = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, pass_fds=[held.fileno()]
        )
    with (tmp_path / "lock").open("w") as lock:
        with pytest.raises(BlockingIOError):
            acquire(lock, patience=0)
        child.stdin.close()
        acquire(lock, patience=60)
    child.wait()


@pytest.mark.bad_input
def test_a_lock_that_another_holds_on_to_is_refused_after_the_patience(tmp_path):
    with (tmp_path / "lock").open("w") as held, (tmp_path / "lock").open("w") as lock:
        acquire(held)
        began = time.monotonic()
        with pytest.raises(BlockingIOError):
            acquire(lock, patience=0.2)
        assert time.monotonic() - began >= 0.2
        os.close(os.dup(held.fileno()))  # a closed copy lets nothing go
        with pytest.raises(BlockingIOError):
            acquire(lock, patience=0)
