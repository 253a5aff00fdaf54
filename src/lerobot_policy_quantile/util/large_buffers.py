"""Large buffers go back to the system when they are freed."""

import ctypes

MMAP_THRESHOLD = -3
"""glibc's number for the size from which a buffer is mapped on its own."""


def return_large_buffers(size: int = 8 * 2**20) -> bool:
    """Map every buffer of at least `size` bytes on its own; False where the C library has no such setting.

    Left alone, glibc raises this size with the largest buffer freed so far, keeps later ones in its heap, and a server
    that has seen large pictures stays large.
    """
    try:
        return bool(ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, size))
    except (AttributeError, OSError, TypeError):
        return False
