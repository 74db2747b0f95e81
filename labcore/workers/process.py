"""The supervisor as a process. A server begins it before it loads anything else: torch takes longest, and a first run
waits for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from labcore.runs.files.paths import home, made

ROOT = Path(__file__).resolve().parents[2]  # of the lab's code
SUPERVISOR = (sys.executable, "-m", "labcore.workers.supervisor")
# Threads made by these libraries at import would make the fork unsafe; the worker sets torch's number itself.
QUIET = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
         "TOKENIZERS_PARALLELISM": "false", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
# glibc allocates tensors in pages of 2 MB: with pages of 4 kB, address look-ups (TLB misses) slow every step.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
_ahead: list[subprocess.Popen[bytes]] = []


def begin() -> None:
    """Start the supervisor of the lab that this process is about to open. It ends with this process.

    Raises:
        LabError: the lab's folder cannot be made.
    """
    _ahead.append(started(SUPERVISOR, None))


def taken(command: Sequence[str], url: str) -> subprocess.Popen[bytes]:
    """The supervisor of the store `url`: the one that `begin` started if it has this store, otherwise a new one."""
    from labcore.runs.store.dialects import store_url  # here, since SQLAlchemy takes a while to load: see the module

    while _ahead:
        process = _ahead.pop()
        if process.poll() is None and (tuple(command), url) == (SUPERVISOR, store_url()):
            return process
        assert process.stdin
        process.stdin.close()
    return started(command, url)


def started(command: Sequence[str], url: str | None) -> subprocess.Popen[bytes]:
    """Start a supervisor, which reads orders from its standard input until this closes. `url` as in `environment`."""
    with log().open("ab") as file:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=file, stderr=file, env=environment(url),
                                start_new_session=True)


def environment(url: str | None) -> dict[str, str]:
    """The environment variables of a process of the lab with the store `url` (None: the store of this process). The
    user's own GLIBC_TUNABLES are kept."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**HUGE_PAGES, **os.environ, **QUIET, "PYTHONPATH": path, "RL_LAB_HOME": str(home()),
            **({} if url is None else {"RL_LAB_STORE": url})}


def log() -> Path:
    """The file to which the supervisor writes errors."""
    return made(home()) / "supervisor.log"
