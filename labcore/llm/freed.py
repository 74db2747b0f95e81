"""Memory that tensors gave back stays with the process."""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # the names in malloc.h
FREE_BYTES, OWN_BYTES = 2**31 - 1, 2**30  # kept while they are free, at the most; from which on a block is on its own


def keep_freed() -> None:
    """Have glibc keep freed memory for the next tensors of this process.

    Otherwise it returns every large block to the system, which clears each of its pages before it gives them out again:
    about a twentieth of a step of a large model, and more on a machine that is short of memory.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt:
        mallopt(MMAP_THRESHOLD, OWN_BYTES)
        mallopt(TRIM_THRESHOLD, FREE_BYTES)
