"""Runs as children of the supervisor, on its machine. It cuts the lifeline of all its children itself."""

from __future__ import annotations

import platform
from collections.abc import Iterator

from labcore.files.paths import max_runs
from labcore.workers.children import Children
from labcore.workers.executors.executor import Ended


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
