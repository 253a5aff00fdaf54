"""`python -m tests.support.memory_probe workers|pages [FILE]`: measures memory in a process of its own and prints it.

A process that has loaded torch shares hundreds of megabytes of libraries with its neighbours, and its share of them
moves whenever a neighbour comes or goes. This one has loaded next to nothing.
"""

import json
import mmap
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from lerobot_policy_quantile.util.processes import MemoryWatch, memory_held
from tests.support.waiting import wait_until

BYTES = 200_000_000


@contextmanager
def waiting(statements: str) -> Iterator[None]:
    """A child process that has run them and stays."""
    program = f"{statements}; print('ready', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        yield
        child.communicate(b"\n")


def workers() -> dict[str, float]:
    """Before, while and after a child holds its bytes, and the most that a watch saw."""
    before = memory_held()
    with MemoryWatch(seconds=0.01) as memory:
        with waiting(f"block = b'x' * {BYTES}"):
            held = memory_held()
            wait_until(lambda: memory.most > before + BYTES / 2, "a look at the child's memory")
        after = memory_held()
    return {"before": before, "held": held, "after": after, "most": memory.most}


def pages(path: str) -> dict[str, float]:
    """Before, after this process has read all of a mapped file, and after a child has done so as well."""
    reads = f"import mmap; file = open({path!r}); pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)"
    with open(path, "wb") as file:
        file.write(bytes(BYTES))
    with open(path) as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        before = memory_held()
        mapped.find(b"x")
        alone = memory_held()
        with waiting(f"{reads}; pages.find(b'x')"):
            together = memory_held()
    return {"before": before, "alone": alone, "together": together}


if __name__ == "__main__":
    print(json.dumps(pages(sys.argv[2]) if sys.argv[1] == "pages" else workers()))
