"""The interface between the supervisor and the processes of its runs, which every executor implements.

The worker is the same everywhere (`labcore.workers.worker`): it claims its run, writes to the store and takes controls
from there. So an executor only starts a process, says when and how it ended, and cuts its lifeline.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from labcore.runs.files.paths import log_file, max_runs
from labcore.workers.children import Children


@dataclass(frozen=True)
class Ended:
    """The process of a run is gone. `owner` is its pid and its machine, None where there never was one.

    `why` is what the run is told if the process still had it; `fault` is the sentence with which it fails if the
    process never took it, and is empty where it is to stay as it is.
    """

    run_id: str
    owner: tuple[int, str] | None
    why: str
    fault: str = ""

    @staticmethod
    def with_code(run_id: str, owner: tuple[int, str], code: int) -> Ended:
        """Of a process with that exit code, negative where a signal ended it."""
        why = f"its process was killed by signal {-code}" if code < 0 else f"its process ended with code {code}"
        if code == -9:
            why += ", as the system does when memory runs out"
        fault = f"The worker did not start ({why}): the details are in {log_file(run_id)} on {owner[1]}" if code else ""
        return Ended(run_id, owner, why, fault)


class Executor(Protocol):
    """Holds the runs that were started until it has said of each that it ended. `limit`: as many at once."""

    limit: int

    def start(self, run_id: str) -> None:
        """See that the queued run gets a process.

        Raises:
            OSError: none is to be had now; or a LabError which that is the cause of.
            LabError: this run cannot be started.
        """

    def ended(self) -> Iterator[Ended]:
        """The runs that have ended; it lets go of each as it tells of it."""

    def waiting(self) -> Mapping[str, str]:
        """Why runs that were started have no process yet: of each what is new since this was last asked."""

    def watched(self) -> Sequence[int]:
        """Descriptors that can be read when there is something to ask for."""

    def cut(self) -> None:
        """Let the workers know that the lab is gone: they checkpoint and end."""

    def kill(self) -> None:
        """End the remaining processes."""


# ---------------------------------------------------------------- local
# Runs as children of the supervisor, on its machine. It cuts the lifeline of all its children itself.

class Local:
    """The `Executor` of this machine. Raises LabError where `RL_LAB_MAX_RUNS` is no number."""

    def __init__(self, children: Children):
        self.limit = max_runs()
        self._children = children
        self._runs: dict[int, str] = {}  # pid -> run id

    def start(self, run_id: str) -> None:
        self._runs[self._children.start(run_id)] = run_id

    def ended(self) -> Iterator[Ended]:
        for pid in list(self._runs):
            if (code := self._children.ended(pid)) is not None:
                yield Ended.with_code(self._runs.pop(pid), (pid, platform.node()), code)

    def waiting(self) -> dict[str, str]:
        return {}

    def watched(self) -> list[int]:
        return []  # the end of a child wakes the supervisor by itself

    def cut(self) -> None:
        """See the module."""

    def kill(self) -> None:
        for pid in self._runs:
            self._children.kill(pid)
