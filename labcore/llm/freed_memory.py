"""Memory that a run freed stays with its process, so the system does not have to clear it for the next tensor."""

import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # the names in malloc.h
FREE_BYTES, OWN_BYTES = 2**31 - 1, 2**30  # bytes: the most free memory to keep; blocks that get their own mapping


def keep_freed() -> None:
    """Have glibc keep freed memory for the next tensors of this process.

    Otherwise glibc returns every large block to the system, which clears each page before a process gets it again. That
    takes about a twentieth of a step of a large model, and more on a machine that is short of memory.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt:
        mallopt(MMAP_THRESHOLD, OWN_BYTES)
        mallopt(TRIM_THRESHOLD, FREE_BYTES)
