"""Memory that a run freed stays with its process: the system does not clear it again for the next tensor."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import resource, sys, torch
from labcore.llm import memory
if sys.argv[1] == "kept":
    memory.keep_freed()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for number in range(8):
    if number == 4:
        before = faults()
    torch.ones(2**24)
print(faults() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc")
def test_freed_memory_is_kept_for_the_next_tensor():
    faults = {how: int(subprocess.run([sys.executable, "-c", CODE, how], capture_output=True, text=True, check=True
                                      ).stdout) for how in ("kept", "returned")}
    assert faults["kept"] < 100 < faults["returned"], "64 MB have thousands of pages"
