"""How processes that run side by side share the cores."""

import os


def share_cores(workers: int) -> None:
    """One thread of arithmetic per process; where processes take all cores, pictures are drawn in the same thread.

    The latter is for software rendering (Mesa's llvmpipe), which starts a thread per core in every process otherwise.
    Call it before torch and GL are loaded. What the environment says already stands.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if workers >= (os.cpu_count() or 1):
        os.environ.setdefault("LP_NUM_THREADS", "0")
