"""How processes that run side by side share cores and memory."""

import ctypes
import os


def share_cores(workers: int) -> None:
    """One thread of arithmetic per process; where processes take all cores, pictures are drawn in the same thread.

    The latter is for software rendering (Mesa's llvmpipe), which starts a thread per core in every process otherwise.
    Call it before torch and GL are loaded. What the environment says already stands.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if workers >= (os.cpu_count() or 1):
        os.environ.setdefault("LP_NUM_THREADS", "0")


def give_back_memory() -> None:
    """Return to the system what the C library holds ready for later; only glibc can be asked to."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
