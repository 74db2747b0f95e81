"""Imported runs: metrics of another tool, kept for comparison with our own. Marked as such, never trained on.

Each has the folder `imported/<its name>` with the rows under our keys, the mapping of columns to keys, and the place of
the original file among the uploads, which is kept once for all runs in it. Its star, tags, note and trash mark are in
the store, as for our own runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from labcore.catalog.metrics import ordered
from labcore.errors import LabError, os_reason, quoted
from labcore.runs.faults import disk_full
from labcore.runs.files import atomic, tables, uploads
from labcore.runs.files.jsonl import read_bytes
from labcore.runs.files.paths import home, imports, is_import, made, named, read_only
from labcore.runs.files.untrusted import json_of, whole
from labcore.runs.imports.reading import parse, parse_own
from labcore.runs.imports.run import UNKNOWN, Foreign
from labcore.runs.store.changes import in_the_trash
from labcore.runs.store.rows import COUNTERS, Marks, Step
from labcore.runs.store.store import Store
from labcore.runs.traces import Trace, axes_of


@dataclass(frozen=True)
class Imported:
    """An imported run as it is kept. `label` is the group that it is compared in: a run of the same label is another
    seed of it. `mapped` and `left` are those of `Foreign`. `source` is the file as it came, in the lab's folder;
    `summary` is what a list keeps of it. The last four are its `Marks`."""

    id: str
    label: str
    file: str
    created: float
    steps: int
    mapped: dict[str, str]
    left: dict[str, str]
    notes: tuple[str, ...]
    source: str = ""
    summary: str = field(default="", compare=False)
    star: bool = False
    project: str = ""
    tags: tuple[str, ...] = ()
    note: str = ""
    deleted: float | None = None


_LATER = ("source", "summary")  # fields that earlier versions lack
_OLD = "unmapped"  # a field from before `left`, when numbers were dropped without a note
_KEPT = [name for name in Imported.__dataclass_fields__ if name not in Marks.__dataclass_fields__]


def read_file(path: Path) -> list[Trace]:
    """The runs in a metrics file, not kept. Raises LabError as `parse`, or where the file cannot be read."""
    found = parse(path.name, read_bytes(path))
    names = [f"{path}" if len(found) == 1 else f"{path} {run.label}" for run in found]
    return [_trace(name, name, run) for name, run in zip(names, found, strict=True)]


def keep(store: Store, name: str, content: bytes, label: str = "") -> list[Imported]:
    """Import a metrics file: keep it and its rows. The same file under the same label is kept once, out of the trash.
    Raises LabError as `parse`, or if it cannot be written."""
    return keep_all(store, [(name, content)], label)


def keep_all(store: Store, files: Sequence[tuple[str, bytes]], label: str = "") -> list[Imported]:
    """Import some metrics files by their names and contents, all or none of them. Raises LabError as `keep`."""
    found = [(name, content, parse(name, content, whole(label))) for name, content in files]
    run_ids = [run_id for name, content, runs in found for run_id in _kept(name, content, runs)]
    marks = store.marks()
    if lying := [run_id for run_id in run_ids if run_id in marks and marks[run_id].deleted is not None]:
        store.restore(lying)
        marks = store.marks()
    return [replace(_about(run_id), **vars(marks.get(run_id, Marks()))) for run_id in run_ids]


def _kept(name: str, content: bytes, runs: Sequence[Foreign]) -> list[str]:
    """Keep a file and the runs that are in it. Returns their names."""
    there_already = uploads.file_at(uploads.place(content).name)
    source = uploads.keep(there_already.name if there_already else name, content).relative_to(home()).as_posix()
    digest, created = hashlib.sha256(content), time.time()
    run_ids, before = [], Counter[str]()
    for run in runs:
        of = digest.copy()
        of.update(f"{run.label}\0{before[run.label]}".encode() if before[run.label] else run.label.encode())
        before[run.label] += 1
        slug = re.sub(r"[^a-z0-9]+", "-", run.label.lower()).strip("-")[:40] or "run"
        run_id = f"imported-{slug}-{of.hexdigest()[:6]}"
        about = {"id": run_id, "label": run.label, "file": Path(name).name,
                 "created": created, "steps": run.columns["step"].size, "mapped": run.mapped,
                 "left": run.left, "notes": run.notes, "source": source}

        def fill(folder: Path, run: Foreign = run, about: dict[str, Any] = about) -> None:
            _write_rows(folder / "rows.csv", run)
            _write_about(folder, about)

        try:
            if not there(run_id) or _is_of_before(run_id):
                # A sync takes milliseconds. What a power cut takes of many runs can be made of their file again.
                atomic.write_folder(made(imports()) / run_id, fill, replace=True, sync=len(runs) == 1)
        except OSError as error:
            why = "the disk is full" if disk_full(error) else os_reason(error)
            raise LabError(f"{name} cannot be kept in {imports()} ({why}): free some space, or set RL_LAB_HOME to "
                           "a folder that you may write to.") from error
        run_ids.append(run_id)
    return run_ids


def _is_of_before(run_id: str) -> bool:
    """True if the rows of an imported run were read by an earlier version, which understood less of its file."""
    try:
        return _OLD in json_of(_read(run_id, "about.json"), constants=True)
    except (LabError, ValueError, TypeError):
        return False


def keep_summary(run: Imported, summary: str) -> None:
    """Keep the summary that lists show of an imported run, so that they need not read its rows again. Raises OSError if
    it cannot be written."""
    there = (place(run.id) / "rows.csv").exists()  # otherwise it has just been deleted and must not be made again
    if there and not read_only():
        _write_about(place(run.id), {**{key: getattr(run, key) for key in _KEPT}, "summary": summary})


def sources() -> Iterator[str]:
    """The original files of imported runs, as places in the lab's folder. If a damaged run cannot name its file, any
    upload may be it."""
    for run_id in _names():
        try:
            yield _about(run_id).source
        except LabError:
            yield from map(str, uploads.root().glob("*"))


def listed(store: Store) -> list[Imported]:
    """All imported runs, newest first. One whose files are damaged has no rows, and a note that says so."""
    return sorted((run for run in _all(store) if run.deleted is None), key=lambda run: -run.created)


def trashed(store: Store) -> list[Imported]:
    """The imported runs in the trash, the last deleted first."""
    return sorted((run for run in _all(store) if run.deleted is not None), key=lambda run: -(run.deleted or 0.0))


def _all(store: Store) -> Iterator[Imported]:
    marks = store.marks()
    for run_id in _names():
        yield replace(_about_or_fault(run_id), **vars(marks.get(run_id, Marks())))


def _names() -> list[str]:
    """The names of all imported runs, in the trash or not."""
    if not imports().is_dir():
        return []
    with os.scandir(imports()) as found:
        return [entry.name for entry in found if is_import(entry.name) and entry.is_dir()]


def there(run_id: str) -> bool:
    """True if an imported run has this name, in the trash or not."""
    return is_import(run_id) and place(run_id).is_dir()


def known(store: Store, run_id: str) -> bool:
    """True if an imported run has this name, and is not in the trash."""
    return there(run_id) and store.marks_of(run_id).deleted is None


def check_there(run_id: str) -> None:
    """Raise LabError unless `there`."""
    if not there(run_id):
        raise LabError(f"There is no imported run {quoted(run_id)}: import its file first.")


def check(store: Store, run_id: str) -> None:
    """Raise LabError unless `known`."""
    check_there(run_id)
    if not known(store, run_id):
        raise in_the_trash(run_id)


def by_reason(left: Mapping[str, str]) -> dict[str, list[str]]:
    """Why something stays in the file -> all columns of which that is so.

    >>> by_reason({"epoch": "not known to the lab", "kl2": "kl is read from kl", "lr2": "not known to the lab"})
    {'not known to the lab': ['epoch', 'lr2'], 'kl is read from kl': ['kl2']}
    """
    found: dict[str, list[str]] = {}
    for column, why in left.items():
        found.setdefault(why, []).append(column)
    return found


def label(run_id: str) -> str:
    """The group that an imported run is compared in; its id where its files are damaged."""
    return _about_or_fault(run_id).label


def title(run_id: str, label: str) -> str:
    """The title of an imported run beside others, which may have its label: "TRL (imported, 3fa1b2)"."""
    return f"{label} (imported, {run_id.rpartition('-')[2]})"


def with_id(run_id: str) -> str:
    """An imported run in the words of a command: "TRL (imported-trl-3fa1b2)"."""
    return f"{label(run_id)} ({run_id})"


def load(run_id: str) -> Trace:
    """An imported run as a trace, in the trash or not. Raises LabError if there is none, or its files are damaged."""
    about = _about(run_id)
    return _trace(run_id, title(run_id, about.label), replace(_rows(run_id), label=about.label, notes=about.notes))


def rows(run_id: str) -> tuple[Step, ...]:
    """The rows of an imported run, under our keys, with NaN where its file says so. Raises LabError as `load`."""
    return tuple(_rows(run_id).steps())


def steps(run_id: str) -> Iterator[Step]:
    """The rows of an imported run one by one, for runs of any length."""
    return _rows(run_id).steps()


def place(run_id: str) -> Path:
    """The folder of an imported run. Raises LabError where `run_id` cannot be an id."""
    return named(run_id, imports())


def _about_or_fault(run_id: str) -> Imported:
    """The entry of an imported run; of one that is damaged a note that says so."""
    try:
        return _about(run_id)
    except LabError as error:
        return Imported(run_id, run_id, "", 0.0, 0, {}, {}, (str(error),))


def _about(run_id: str) -> Imported:
    try:
        fields = json_of(_read(run_id, "about.json"), constants=True)
        if _OLD in fields:
            fields["left"] = dict.fromkeys(fields[_OLD], UNKNOWN)
        kept: dict[str, Any] = {key: fields[key] for key in _KEPT if key in fields or key not in _LATER}
        kept |= {"notes": tuple(kept["notes"]), "mapped": dict(kept["mapped"]), "left": dict(kept["left"])}
        # The folder's name was checked, but not the content of the file.
        return replace(Imported(**kept), id=run_id)
    except (ValueError, TypeError, KeyError) as error:
        raise _damaged(run_id, "about.json") from error


def _write_about(folder: Path, about: dict[str, Any]) -> None:
    atomic.write_text(folder / "about.json", json.dumps(about, ensure_ascii=False, indent=2))


def _rows(run_id: str) -> Foreign:
    try:
        return parse_own("rows.csv", _read(run_id, "rows.csv"))
    except LabError as error:
        raise _damaged(run_id, "rows.csv") from error


def _write_rows(path: Path, run: Foreign) -> None:
    """Write one line per step: the counters that the run has, then its metrics, as `parse_own` reads them. A cell is
    empty where there was none, and says nan or inf where the file did."""
    counters = [key for key in COUNTERS if key == "step" or run.columns[key].any()]
    columns = [map(int, run.columns[key].tolist()) if key != "seconds" else run.columns[key].tolist()
               for key in counters]
    keys = ordered(run.there)
    numbers = [[number if there else None for number, there in zip(run.columns[key].tolist(), run.there[key].tolist(),
                                                                   strict=True)] for key in keys]
    tables.write(path, [*counters, *keys], zip(*columns, *numbers, strict=True))


def _read(run_id: str, file: str) -> bytes:
    check_there(run_id)
    try:
        return (place(run_id) / file).read_bytes()
    except OSError as error:
        raise _damaged(run_id, file) from error


def _damaged(run_id: str, file: str) -> LabError:
    return LabError(f"The imported run {run_id} has no {file} that can be read: delete it, then import its file again.")


def _trace(name: str, title: str, run: Foreign) -> Trace:
    metrics = dict(run.metrics)
    axes = axes_of([run.columns[key] for key in COUNTERS], metrics)
    return Trace(name, None, "imported", axes, metrics, label=run.label, notes=run.notes, title=title)
