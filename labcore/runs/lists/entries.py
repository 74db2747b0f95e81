"""Runs and imported runs as rows of one list, each with its summary."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from labcore.catalog.knob import Value
from labcore.catalog.metric import Metric
from labcore.catalog.metrics import METRICS
from labcore.catalog.right import in_run
from labcore.runs.imports.imported import Imported
from labcore.runs.steering import unusual
from labcore.runs.store.rows import ACTIVE, RunRow
from labcore.runs.summary import Summary
from labcore.runs.titles import title

IMPORTED = "imported"  # the kind and the state of a run of another tool


@dataclass(frozen=True)
class Entry:
    """A run of the lab or of another tool, as a list shows it.

    `title` is its title; for a run of another tool, the name that its owner gave it. `algorithm` and `task` are names
    for readers, `keys` those of the catalog. Times are unix seconds, `seconds` active ones; `steps` is the planned
    number of steps, `settings` the knobs that are not at their defaults. Unknown fields of a run of another tool are
    None or empty.
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
    project: str = ""
    tool: str = ""  # the trainer of a watched run
    metric: Metric | None = None  # that of the summary, as this run calls it

    @property
    def active(self) -> bool:
        """Whether a worker has the run or will have it."""
        return self.state in ACTIVE


def of_run(row: RunRow, summary: Summary) -> Entry:
    spec = row.spec
    found = Entry(row.id, title(row), spec.kind, row.state, spec.row.label, row.created, row.step, summary,
                  spec.task_row.label, spec.model, (spec.algorithm, spec.task), spec.seed, spec.steps, row.ended,
                  row.seconds, row.message, ", ".join(unusual(spec)), spec.knobs, spec.parent, row.sweep, row.star,
                  row.tags, row.note, row.deleted, pending=row.pending, project=row.project, tool=spec.tool,
                  metric=in_run(summary.metric, spec.row, spec.task_row, spec.knobs) if summary.metric else None)
    if not spec.kind_row.elsewhere:
        return found
    return replace(found, task="", model="", seed=None, steps=spec.steps or None, settings="")  # its title has the rest


def of_imported(run: Imported, summary: Summary) -> Entry:
    return Entry(run.id, run.label, IMPORTED, IMPORTED, run.label, run.created, summary.step or run.steps, summary,
                 message=" ".join(run.notes), star=run.star, tags=run.tags, note=run.note, deleted=run.deleted,
                 imported=run, project=run.project, metric=METRICS.get(summary.metric))


# ---------------------------------------------------------------- fields
# What a list can be searched, grouped and ordered by: the fields of a run, and any knob.

MEGABYTE, DAY = 1e6, 86_400.0
DIGITS = 12  # of the numbers of runs, in the order of titles


@dataclass(frozen=True)
class Field:
    """`read` gives a run's value, None where it has none; `unit` is that of its numbers."""

    key: str
    label: str
    read: Callable[[Entry], Any]
    unit: str = ""


_ALL = (
    Field("id", "Run", lambda entry: entry.title),
    Field("kind", "Kind", lambda entry: entry.kind),
    Field("state", "State", lambda entry: entry.state),
    Field("algorithm", "Algorithm", lambda entry: entry.algorithm),
    Field("task", "Task", lambda entry: entry.task or None),
    Field("model", "Model", lambda entry: entry.model or None),
    Field("tool", "Tool", lambda entry: entry.tool or None),
    Field("seed", "Seed", lambda entry: entry.seed),
    Field("step", "Steps done", lambda entry: entry.step),
    Field("steps", "Steps of all", lambda entry: entry.steps),
    Field("metric", "Metric", lambda entry: entry.metric and entry.metric.label),
    Field("last", "Last", lambda entry: entry.summary.last),
    Field("best", "Best", lambda entry: entry.summary.best),
    Field("started", "Started", lambda entry: entry.created),
    Field("age", "Age", lambda entry: (time.time() - entry.created) / DAY, "days"),
    Field("duration", "Duration", lambda entry: entry.seconds, "s"),
    Field("size", "Size", lambda entry: None if entry.summary.size is None else entry.summary.size / MEGABYTE, "MB"),
    Field("star", "Star", lambda entry: entry.star),
    Field("tag", "Tags", lambda entry: entry.tags or None),
    Field("note", "Note", lambda entry: entry.note or None),
    Field("project", "Project", lambda entry: entry.project or None),
    Field("sweep", "Sweep", lambda entry: entry.sweep),
    Field("parent", "Parent", lambda entry: entry.parent[0] if entry.parent else None),
)

FIELDS: dict[str, Field] = {field.key: field for field in _ALL}
GROUPS = ("project", "algorithm", "task", "model", "kind", "tool", "state", "seed", "tag", "star", "sweep", "parent",
          "metric")
ORDERS = ("started", "last", "best", "duration", "size", "step", "state", "algorithm", "task", "seed", "id")
TEXTS = frozenset({"state", "algorithm", "task", "id"})  # fields that are sorted by the alphabet


def value(entry: Entry, key: str) -> Any:
    """The value of a run's field or knob; None where it has neither."""
    return FIELDS[key].read(entry) if key in FIELDS else entry.knobs.get(key)


def knobs(entries: Iterable[Entry]) -> list[str]:
    """All knobs that the entries have: first those that differ between runs of one algorithm, then by name."""
    found: dict[tuple[str, str], set[tuple[str, Any]]] = {}  # kind and algorithm -> the settings of its runs
    for entry in entries:
        found.setdefault((entry.kind, entry.algorithm), set()).update(entry.knobs.items())
    values = [Counter(key for key, _ in settings) for settings in found.values()]
    return sorted(set().union(*values), key=lambda key: (all(count[key] < 2 for count in values), key))


@dataclass(frozen=True)
class Group:
    """The runs that have one value. `means`: metric -> (how many runs, mean of last, mean of best)."""

    value: Any
    entries: tuple[Entry, ...]

    @property
    def means(self) -> dict[str, tuple[int, float, float | None]]:
        found: dict[str, list[tuple[float, float | None]]] = {}
        for summary in (entry.summary for entry in self.entries):
            if summary.last is not None:
                found.setdefault(summary.metric, []).append((summary.last, summary.best))
        return {metric: (len(those), fmean(last for last, _ in those), _mean([best for _, best in those]))
                for metric, those in found.items()}


def _mean(values: list[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return fmean(there) if there else None


def grouped(entries: Iterable[Entry], key: str) -> list[Group]:
    """The entries by their value of a field or knob, in the order of the values; those without one last."""
    found: dict[Any, list[Entry]] = {}
    for entry in entries:
        found.setdefault(value(entry, key), []).append(entry)
    return [Group(of, tuple(found[of])) for of in sorted(found, key=_rank)]


def ordered(entries: Iterable[Entry], key: str, descending: bool) -> list[Entry]:
    """The entries by a field or knob; those without a value last."""
    known = [(value(entry, key), entry) for entry in entries]
    there = [pair for pair in known if pair[0] is not None]
    there.sort(key=lambda pair: _rank(pair[0]), reverse=descending)
    return [entry for _, entry in (*there, *(pair for pair in known if pair[0] is None))]


def _rank(of: Any) -> tuple[int, float, str]:
    """Numbers by size, then texts by the alphabet, where #9 comes before #10, then nothing."""
    if of is None:
        return (2, 0.0, "")
    if isinstance(of, (int, float)):
        return (0, float(of) if math.isfinite(of) else 0.0, "")
    text = ", ".join(of) if isinstance(of, tuple) else str(of)
    return (1, 0.0, re.sub(r"(?<=#)\d+", lambda digits: digits[0].zfill(DIGITS), text.casefold()))
