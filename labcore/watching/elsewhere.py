"""The kind of watched runs: its session, which cannot be started here, and its sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from labcore.catalog.goal import Goal
from labcore.runs.spec.run_spec import RunSpec, check_ours
from labcore.runs.spec.session import Record


class Elsewhere:
    """The `Session` of a watched run. The lab does not train it, so every way to start or change it is refused."""

    def __init__(self, spec: RunSpec):
        self.spec, self.knobs, self.step, self.updates, self.finished_because = spec, dict(spec.knobs), 0, 0, ""

    @staticmethod
    def start(spec: RunSpec, base_folder: Path | None = None, resume: Path | None = None) -> Elsewhere:
        """Raises LabError."""
        check_ours(spec)
        return Elsewhere(spec)

    def run(self) -> Iterator[Record | None]:
        """Raises LabError."""
        check_ours(self.spec)
        yield None

    def save(self, folder: Path) -> None:
        """Raises LabError."""
        check_ours(self.spec)

    def fork(self, spec: RunSpec) -> Elsewhere:
        """Raises LabError."""
        return self.start(spec)

    def kept(self) -> Callable[[Path], Any] | None:
        """Nothing: it has no weights."""
        return None


def goal(spec: RunSpec) -> Goal:
    """Says who trains the run."""
    return Goal((f"Trained by {spec.tool or 'another program'}; the lab only shows it.",))
