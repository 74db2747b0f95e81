"""Runs and imported runs as rows of one list, each with its summary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from labcore.catalog.knob import Value
from labcore.compare.imported import Imported
from labcore.runs.steering import unusual
from labcore.runs.summary import Summary
from labcore.runs.titles import title
from labcore.store.rows import ACTIVE, RunRow

IMPORTED = "imported"  # the kind and the state of a run of another tool


@dataclass(frozen=True)
class Entry:
    """A run of the lab or of another tool, as a list shows it.

    `title` is what it is called, of a run of another tool the name that its owner gave it. `algorithm` and `task` are
    names to be read, `keys` those of the catalog. Times are unix seconds, `seconds` active
    ones; `steps` is how many the run is to have, `settings` the knobs that are not at their defaults. What is
    not known of a run of another tool is None or empty.
    """

    id: str
    title: str
    kind: str
    state: str
    algorithm: str
    created: float
    step: int
    summary: Summary
    task: str = ""
    model: str = ""
    keys: tuple[str, str] = ("", "")
    seed: int | None = None
    steps: int | None = None
    ended: float | None = None
    seconds: float | None = None
    message: str = ""
    settings: str = ""
    knobs: Mapping[str, Value] = field(default_factory=dict)
    parent: tuple[str, int] | None = None
    sweep: str | None = None
    star: bool = False
    tags: tuple[str, ...] = ()
    note: str = ""
    deleted: float | None = None
    imported: Imported | None = None
    pending: str = ""  # as of a `RunRow`

    @property
    def active(self) -> bool:
        """Whether a worker has the run or will have it."""
        return self.state in ACTIVE


def of_run(row: RunRow, summary: Summary) -> Entry:
    spec = row.spec
    return Entry(row.id, title(row), spec.kind, row.state, spec.row.label, row.created, row.step, summary,
                 spec.task_row.label, spec.model, (spec.algorithm, spec.task), spec.seed, spec.steps, row.ended,
                 row.seconds, row.message, ", ".join(unusual(spec)), spec.knobs, spec.parent, row.sweep, row.star,
                 row.tags, row.note, row.deleted, pending=row.pending)


def of_imported(run: Imported, summary: Summary) -> Entry:
    return Entry(run.id, run.label, IMPORTED, IMPORTED, run.label, run.created, summary.step or run.steps, summary,
                 message=" ".join(run.notes), star=run.star, tags=run.tags, note=run.note, deleted=run.deleted,
                 imported=run)
