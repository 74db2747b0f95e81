"""Imported runs: metrics of another tool, kept to be laid beside our own. Marked as such, never trained on.

Each lies in `imported/<its name>`: the file as it came, the rows under our keys, and what was mapped to what. A deleted
one lies in `imported/.trash` until it is restored, or deleted for good.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from labcore.compare import foreign
from labcore.compare.traces import Trace, axes_of, columns_of
from labcore.errors import LabError
from labcore.exports.folder import write_metrics
from labcore.files import atomic
from labcore.files.jsonl import read_bytes
from labcore.files.paths import home, made
from labcore.runs.faults import disk_full
from labcore.store.rows import Step


@dataclass(frozen=True)
class Imported:
    """An imported run as it is kept. `label` is the group that it is compared in: a run of the same label is another
    seed of it. `star`, `tags` and `note` are its owner's; `deleted` is when it was put into the trash."""

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


def read_file(path: Path) -> list[Trace]:
    """The runs in a CSV file, not kept. Raises LabError as `parse`, or where the file cannot be read."""
    if not path.exists():
        raise LabError(f"There is no file {path}: check the path.")
    found = foreign.parse(path.name, read_bytes(path))
    return [_trace(f"{path}" if len(found) == 1 else f"{path} {run.label}", run.label, run.rows, run.notes)
            for run in found]


def keep(name: str, content: bytes, label: str = "") -> list[Imported]:
    """Import a CSV: keep the file and its rows. The same file under the same label is kept once.

    Raises:
        LabError: as `parse`, or it cannot be written.
    """
    kept = []
    for run in foreign.parse(name, content, label):
        digest = hashlib.sha256(content + run.label.encode()).hexdigest()[:6]
        run_id = f"imported-{re.sub(r'[^a-z0-9]+', '-', run.label.lower()).strip('-')[:40] or 'run'}-{digest}"
        told = Imported(run_id, run.label, Path(name).name, time.time(), len(run.rows), run.mapped, run.unmapped,
                        run.notes)

        def fill(folder: Path, run: foreign.Foreign = run, told: Imported = told) -> None:
            (folder / "source.csv").write_bytes(content)
            write_metrics(folder / "rows.csv", list(run.rows))
            (folder / "about.json").write_text(_text(told), "utf-8")

        if not known(run_id) and (_trash() / run_id).is_dir():
            restore(run_id)
        if not known(run_id):
            try:
                atomic.write_folder(made(_folder()) / run_id, fill)
            except OSError as error:
                why = "the disk is full" if disk_full(error) else error.strerror
                raise LabError(f"{name} cannot be kept in {_folder()} ({why}): free some space, or set RL_LAB_HOME to "
                               "a folder that you may write to.") from error
        kept.append(about(run_id))
    return kept


def listed() -> list[Imported]:
    """All imported runs, newest first. One whose files are damaged has no rows, and a note that says so."""
    return sorted(map(_about_or_why_not, _names(_folder())), key=lambda run: -run.created)


def trashed() -> list[Imported]:
    """The imported runs in the trash, the last deleted first."""
    found = [replace(_about_or_why_not(name), deleted=(_trash() / name).stat().st_mtime) for name in _names(_trash())]
    return sorted(found, key=lambda run: -run.deleted)


def _names(folder: Path) -> list[str]:
    found = folder.iterdir() if folder.is_dir() else ()
    return [path.name for path in found if path.name.startswith("imported-") and path.is_dir()]


def _about_or_why_not(run_id: str) -> Imported:
    try:
        return about(run_id)
    except LabError as error:
        return Imported(run_id, run_id, "", 0.0, 0, {}, (), (str(error),))


def mark(run_id: str, *, star: bool | None = None, tags: Sequence[str] | None = None, note: str | None = None) -> None:
    """Set an imported run's star, tags or note; what is None stays as it is. Raises LabError as `about`."""
    given = {key: value for key, value in (("star", star), ("tags", tags), ("note", note)) if value is not None}
    atomic.write_text(place(run_id) / "about.json", _text(replace(about(run_id), **given)))


def trash(run_id: str) -> None:
    """Put an imported run into the trash. Raises LabError where there is none."""
    check(run_id)
    os.utime(_folder() / run_id)  # the trash tells by it since when it is there
    (_folder() / run_id).rename(made(_trash()) / run_id)


def restore(run_id: str) -> None:
    """Take an imported run out of the trash. Raises LabError where it is gone for good."""
    if not (_trash() / run_id).is_dir() or set(run_id) & set("/\\"):
        raise LabError(f"The imported run {run_id} is not in the trash: import its CSV again.")
    if known(run_id):
        raise LabError(f"The imported run {run_id} is there already: delete one of the two for good.")
    (_trash() / run_id).rename(_folder() / run_id)


def known(run_id: str) -> bool:
    """Whether an imported run has this name."""
    return run_id.startswith("imported-") and not set(run_id) & set("/\\") and (_folder() / run_id).is_dir()


def about(run_id: str) -> Imported:
    """What an imported run is. Raises LabError where there is none, or its files are damaged."""
    try:
        fields = json.loads(_read(run_id, "about.json"))
        lists = {key: tuple(fields.get(key, ())) for key in ("unmapped", "notes", "tags")}
        return Imported(**{**fields, **lists})
    except (ValueError, TypeError, KeyError) as error:
        raise _damaged(run_id, "about.json") from error


def load(run_id: str) -> Trace:
    """An imported run as a trace. Raises LabError as `about`."""
    told = about(run_id)
    return _trace(run_id, told.label, rows(run_id), told.notes)


def rows(run_id: str) -> tuple[Step, ...]:
    """The rows of an imported run, under our keys. Raises LabError as `about`."""
    return foreign.parse("rows.csv", _read(run_id, "rows.csv").encode())[0].rows


def forget(run_id: str) -> None:
    """Delete an imported run for good, in the trash or not. Raises LabError where there is none."""
    shutil.rmtree(place(run_id))


def purge(run_id: str, before: float) -> bool:
    """Delete an imported run for good if it lies in the trash since `before` or longer; whether it did."""
    if run_id not in _names(_trash()):
        return False
    path = _trash() / run_id
    with tempfile.TemporaryDirectory(prefix=".", dir=_trash()) as doomed:
        try:
            if path.stat().st_mtime > before:
                return False
            path.rename(Path(doomed) / run_id)  # whole: what was restored meanwhile is not here any more
        except FileNotFoundError:
            return False
    return True


def _folder() -> Path:
    return home() / "imported"


def _trash() -> Path:
    return _folder() / ".trash"


def place(run_id: str) -> Path:
    """The folder of an imported run, in the trash or not."""
    if run_id in _names(_trash()) and not known(run_id):
        return _trash() / run_id
    check(run_id)
    return _folder() / run_id


def _text(told: Imported) -> str:
    return json.dumps(asdict(told), ensure_ascii=False, indent=2)


def check(run_id: str) -> None:
    """Raise LabError where no imported run has this name."""
    if not known(run_id):
        raise LabError(f"There is no imported run {run_id!r}: import its CSV first.")


def _read(run_id: str, file: str) -> str:
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
