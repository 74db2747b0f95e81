"""Imported runs: metrics of another tool, kept to be laid beside our own. Marked as such, never trained on.

Each has the folder `imported/<its name>`: the file as it came, the rows under our keys, and what was mapped to what.
Its star, tags and note, and whether it is in the trash, are in the store, as those of our own runs are.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from labcore.compare import foreign
from labcore.compare.traces import Trace, axes_of, columns_of
from labcore.errors import LabError, quoted
from labcore.exports.folder import write_metrics
from labcore.files import atomic
from labcore.files.given import json_of
from labcore.files.jsonl import read_bytes
from labcore.files.paths import imports, is_import, made, path_of
from labcore.runs.faults import disk_full
from labcore.store.changes import in_the_trash
from labcore.store.rows import Marks, Step
from labcore.store.store import Store


@dataclass(frozen=True)
class Imported:
    """An imported run as it is kept. `label` is the group that it is compared in: a run of the same label is another
    seed of it. The last four are its `Marks`."""

    id: str
    label: str
    file: str
    created: float
    steps: int
    mapped: dict[str, str]
    unmapped: tuple[str, ...]
    notes: tuple[str, ...]
    star: bool = False
    tags: tuple[str, ...] = ()
    note: str = ""
    deleted: float | None = None


_KEPT = [field for field in Imported.__dataclass_fields__ if field not in Marks.__dataclass_fields__]


def read_file(path: Path) -> list[Trace]:
    """The runs in a CSV file, not kept. Raises LabError as `parse`, or where the file cannot be read."""
    found = foreign.parse(path.name, read_bytes(path))
    return [_trace(f"{path}" if len(found) == 1 else f"{path} {run.label}", run.label, run.rows, run.notes)
            for run in found]


def keep(store: Store, name: str, content: bytes, label: str = "") -> list[Imported]:
    """Import a CSV: keep the file and its rows. The same file under the same label is kept once, out of the trash.

    Raises:
        LabError: as `parse`, or it cannot be written.
    """
    kept = []
    for run in foreign.parse(name, content, label):
        digest = hashlib.sha256(content + run.label.encode()).hexdigest()[:6]
        run_id = f"imported-{re.sub(r'[^a-z0-9]+', '-', run.label.lower()).strip('-')[:40] or 'run'}-{digest}"
        about = {"id": run_id, "label": run.label, "file": Path(name).name, "created": time.time(),
                 "steps": len(run.rows), "mapped": run.mapped, "unmapped": run.unmapped, "notes": run.notes}

        def fill(folder: Path, run: foreign.Foreign = run, about: dict[str, Any] = about) -> None:
            (folder / "source.csv").write_bytes(content)
            write_metrics(folder / "rows.csv", list(run.rows))
            (folder / "about.json").write_text(json.dumps(about, ensure_ascii=False, indent=2), "utf-8")

        try:
            if not there(run_id):
                atomic.write_folder(made(imports()) / run_id, fill)
        except OSError as error:
            why = "the disk is full" if disk_full(error) else error.strerror
            raise LabError(f"{name} cannot be kept in {imports()} ({why}): free some space, or set RL_LAB_HOME to "
                           "a folder that you may write to.") from error
        if store.marks_of(run_id).deleted is not None:
            store.restore([run_id])
        kept.append(replace(_about(run_id), **vars(store.marks_of(run_id))))
    return kept


def listed(store: Store) -> list[Imported]:
    """All imported runs, newest first. One whose files are damaged has no rows, and a note that says so."""
    return sorted((run for run in _all(store) if run.deleted is None), key=lambda run: -run.created)


def trashed(store: Store) -> list[Imported]:
    """The imported runs in the trash, the last deleted first."""
    return sorted((run for run in _all(store) if run.deleted is not None), key=lambda run: -run.deleted)


def _all(store: Store) -> Iterator[Imported]:
    marks = store.marks()
    for path in imports().iterdir() if imports().is_dir() else ():
        if is_import(path.name) and path.is_dir():
            try:
                about = _about(path.name)
            except LabError as error:
                about = Imported(path.name, path.name, "", 0.0, 0, {}, (), (str(error),))
            yield replace(about, **vars(marks.get(path.name, Marks())))


def there(run_id: str) -> bool:
    """Whether an imported run has this name, in the trash or not."""
    return is_import(run_id) and place(run_id).is_dir()


def known(store: Store, run_id: str) -> bool:
    """Whether an imported run has this name, and is not in the trash."""
    return there(run_id) and store.marks_of(run_id).deleted is None


def check_there(run_id: str) -> None:
    """Raise LabError unless `there`."""
    if not there(run_id):
        raise LabError(f"There is no imported run {quoted(run_id)}: import its CSV first.")


def check(store: Store, run_id: str) -> None:
    """Raise LabError unless `known`."""
    check_there(run_id)
    if not known(store, run_id):
        raise in_the_trash(run_id)


def load(run_id: str) -> Trace:
    """An imported run as a trace, in the trash or not.

    Raises:
        LabError: there is none, or its files are damaged.
    """
    about = _about(run_id)
    return _trace(run_id, about.label, rows(run_id), about.notes)


def rows(run_id: str) -> tuple[Step, ...]:
    """The rows of an imported run, under our keys. Raises LabError as `load`."""
    return foreign.parse("rows.csv", _read(run_id, "rows.csv").encode())[0].rows


def place(run_id: str) -> Path:
    """The folder of an imported run."""
    return path_of(run_id, imports())


def _about(run_id: str) -> Imported:
    try:
        fields = json_of(_read(run_id, "about.json"))
        return Imported(*(tuple(fields[key]) if key in ("unmapped", "notes") else fields[key] for key in _KEPT))
    except (ValueError, TypeError, KeyError) as error:
        raise _damaged(run_id, "about.json") from error


def _read(run_id: str, file: str) -> str:
    check_there(run_id)
    try:
        return (place(run_id) / file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _damaged(run_id, file) from error


def _damaged(run_id: str, file: str) -> LabError:
    return LabError(f"The imported run {run_id} has lost its {file}: delete it, then import the CSV again.")


def _trace(run_id: str, label: str, rows: Iterable[Step], notes: tuple[str, ...]) -> Trace:
    rows = list(rows)
    metrics = columns_of(rows)
    axes = axes_of([row.step for row in rows], [row.tokens for row in rows], [row.env_steps for row in rows],
                   [row.seconds for row in rows], metrics)
    return Trace(run_id, None, "imported", axes, metrics, label=label, notes=notes)
