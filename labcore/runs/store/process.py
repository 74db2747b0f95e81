"""The process that has a run, and whether it is still alive."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass

import psutil

STALE_SECONDS = 600  # on another machine the heartbeat is all there is; a step may be long


@dataclass(frozen=True)
class Owner:
    """A process: its pid, its machine and when it started (unix seconds), which no later process shares."""

    pid: int
    host: str
    started: float | None

    @staticmethod
    def of(pid: int, host: str | None = None) -> Owner:
        """The process `pid`, as far as this machine can see it."""
        host = host or platform.node()
        here = host == platform.node() and psutil.pid_exists(pid)
        return Owner(pid, host, psutil.Process(pid).create_time() if here else None)

    @staticmethod
    def this() -> Owner:
        return Owner.of(os.getpid())


def gone(owner: Owner, heartbeat: float | None) -> bool:
    """True if the process has ended. On another machine: if it was silent for ten minutes."""
    if owner.host != platform.node():
        return heartbeat is None or time.time() - heartbeat > STALE_SECONDS
    try:
        if owner.pid < 1:  # somebody changed the store
            return True
        process = psutil.Process(owner.pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return True
        return owner.started is not None and abs(process.create_time() - owner.started) > 1.0
    except (psutil.NoSuchProcess, OverflowError):  # or a number that no process has
        return True
