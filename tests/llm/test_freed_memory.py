"""Memory that a run freed stays with its process, so the system does not have to clear it for the next tensor."""

import ctypes
import subprocess
import sys

import pytest

# With and without `keep_freed`, each in a process of its own that has freed nothing yet.
CODE = """
import ctypes, os
from labcore.llm import freed_memory

class Info(ctypes.Structure):  # mallinfo2 of malloc.h
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks",
                                                     "fsmblks", "uordblks", "fordblks", "keepcost")]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info
libc.memalign.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
if forked := os.fork():
    os.waitpid(forked, 0)
else:
    freed_memory.keep_freed()
before = libc.mallinfo2().arena
block = libc.memalign(64, 2**26)  # as torch asks for a tensor
on_its_own = libc.mallinfo2().hblkhd // 2**26
libc.free(block)
print(on_its_own, round((libc.mallinfo2().arena - before) / 2**26))
"""


@pytest.mark.skipif(sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="glibc's malloc")
def test_freed_memory_is_kept_for_the_next_tensor():
    """A tensor of 64 MB is not a mapping of its own, which would be returned to the system, and its memory is kept."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["0 1", "1 0"], "with it, and without"
