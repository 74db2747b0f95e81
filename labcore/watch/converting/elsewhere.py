"""The session of watched runs, which the lab cannot start, and the sentence about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any

from labcore.catalog import watch
from labcore.catalog.goal import Goal, Quote
from labcore.runs.spec.run_spec import RunSpec, check_ours
from labcore.runs.spec.session import Record

_MODELS = ("model", "model_name_or_path", "actor_rollout_ref.model.path", "actor.model_name_or_path", "pretrain")


class Elsewhere:
    """The `Session` of a watched run. Every method that would start or change the run raises, because the lab does not
    train it."""

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
        """Return None, because the lab has no weights of it."""
        return None


def goal(spec: RunSpec) -> Goal:
    """Name the trainer, and the algorithm and the model if it sent them."""
    named = spec.algorithm not in (watch.OTHER, watch.CONTROL) or watch.algorithm_of(spec.knobs)
    model = next((str(spec.knobs[key]) for key in _MODELS if spec.knobs.get(key)), "")
    what = [": ", spec.row.label] if named else []
    what += [" of " if named else ": ", Quote(PurePath(model).name if PurePath(model).is_absolute() else model)
             ] if model else []
    who = [Quote(spec.tool)] if spec.tool else ["another trainer"]
    return Goal(("A run of ", *who, *what, "."))
