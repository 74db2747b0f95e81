"""Clean-up: the runs and files to delete, by age, number or kind, and the disk space that this frees. Starred runs
stay,
and so does every upload that any run names."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from labcore.errors import LabError, os_reason
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files import sizes, storage, uploads
from labcore.runs.files.paths import START, check_writable, home, run_folder
from labcore.runs.files.removal import remove
from labcore.runs.files.removal import remove as remove_folder
from labcore.runs.files.sizes import size
from labcore.runs.files.untrusted import json_of
from labcore.runs.files.uploads import is_place, root
from labcore.runs.imports import imported
from labcore.runs.lists.all_runs import Shelf
from labcore.runs.lists.entries import DAY, IMPORTED, Entry
from labcore.runs.lists.marks import trash
from labcore.runs.store.store import Store

# ---------------------------------------------------------------- disk
# What runs take on the disk, and which of their files can go while their curves and results stay.

SPARE = ("samples", "lines", "export")  # pictures of a run, and its export, which can be made again


def spare_size(run_id: str) -> int:
    """Bytes that `delete_spare` would free."""
    return sum(map(size, _spare_folders(run_id)))


def delete_spare(run_id: str) -> int:
    """Delete an ended run's samples, exports and all its checkpoints but the first, the best and the newest; return the
    bytes that it freed.

    Its curves, its events and its result stay: it can be opened, played, resumed, exported (as a capsule too), and
    forked from its start and its end.
    """
    check_writable()
    freed = 0
    for folder in list(_spare_folders(run_id, published=True)):
        freed += size(folder)
        remove(folder)
        storage.deleted(folder)
    return freed


def _spare_folders(run_id: str, published: bool = False) -> Iterator[Path]:
    """The spare folders that are here; with `published` also those that only the object store has."""
    folder = run_folder(run_id)
    yield from (folder / name for name in SPARE
                if (folder / name).is_dir() or (published and storage.names(run_id, name)))
    found = checkpoint.steps(folder) if published else checkpoint.local(folder)
    best = checkpoint.best_step(folder)
    yield from (path for step, path in found[1:-1] if step != best)


# ---------------------------------------------------------------- cleanup

@dataclass(frozen=True)
class Plan:
    """The runs that a clean-up would delete, oldest first. `size` is the bytes that it frees.

    `files`: only some of their files are deleted, permanently.
    """

    ids: tuple[str, ...]
    size: int
    files: bool = False


def older_than(entries: Iterable[Entry], days: float) -> Plan:
    """Delete the ended runs without a star that ended more than `days` ago."""
    before = time.time() - days * DAY
    return _runs(entry for entry in _free(entries) if (entry.ended or entry.created) < before)


def beyond_newest(entries: Iterable[Entry], keep: int) -> Plan:
    """Delete the ended runs without a star but the newest `keep`."""
    return _runs(sorted(_free(entries), key=lambda entry: -entry.created)[keep:])


def spare_files(entries: Iterable[Entry]) -> Plan:
    """Delete the old checkpoints, samples and exports of the ended runs without a star: see `delete_spare`."""
    sizes = {entry.id: spare_size(entry.id) for entry in _oldest_first(_free(entries)) if entry.kind != IMPORTED}
    heavy = tuple(run_id for run_id, size in sizes.items() if size)
    return Plan(heavy, sum(sizes.values()), files=True)


def carry_out(shelf: Shelf, plan: Plan) -> int:
    """Carry out the plan: move runs to the trash, or delete files for good. Returns the bytes that this frees. Files of
    active runs are left alone. Raises LabError if a run was resumed since the plan was made, and then deletes no run;
    or if files cannot be deleted."""
    if not plan.files:
        trash(shelf.store, plan.ids)
        return plan.size
    ended = {entry.id for entry in shelf.entries(seconds=0) if not entry.active}
    try:
        return sum(delete_spare(run_id) for run_id in plan.ids if run_id in ended)
    except OSError as error:
        raise LabError(f"Files of a run cannot be deleted ({os_reason(error)}: {error.filename or home()}): check the "
                       "folder's permissions, then clean up again.") from error
    finally:
        shelf.recount(plan.ids)


def _free(entries: Iterable[Entry]) -> list[Entry]:
    return [entry for entry in entries if not entry.active and not entry.star]


def _oldest_first(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: entry.created)


def _runs(entries: Iterable[Entry]) -> Plan:
    chosen = _oldest_first(entries)
    return Plan(tuple(entry.id for entry in chosen), sum(entry.summary.size or 0 for entry in chosen))


# ---------------------------------------------------------------- unused uploads
# Uploads that no run names any more: which there are, and how they are deleted.
#
# A file is uploaded before the run that it is for is made: so what was uploaded, or used again, less than a day ago
# always stays.

YOUNG_SECONDS = 86_400.0
_GONE = ".gone-"  # how the name of a folder begins that is being deleted


def unused_uploads(store: Store) -> list[str]:
    """The names of the places that no run needs: no run of the store, in the trash or not, and no run in this folder.

    Young places are left out (see the module); the oldest is first.
    """
    return _unused(store.files())


def remove_uploads(store: Store, places: Iterable[str]) -> dict[str, int]:
    """Delete for good the uploads of `places` that no run needs. Returns the bytes of each deleted upload. Raises
    LabError if one cannot be deleted; each upload is then still complete, or gone for every run."""
    try:
        chosen = {*places} & {*unused_uploads(store)}  # reads every spec, for which no writer is to wait
        with store.files_held() as named:  # meanwhile no run is added
            chosen -= _needed(named)
            gone = {name: root() / f"{_GONE}{name}-{uuid4().hex}" for name in chosen
                    if _age(root() / name) >= YOUNG_SECONDS}
            for name, folder in gone.items():
                (root() / name).rename(folder)
        for name in gone:
            storage.deleted(root() / name)
        freed = {name: sizes.size(folder) for name, folder in gone.items()}
        for folder in root().glob(f"{_GONE}*"):  # also folders that an earlier clean-up could not delete
            remove_folder(folder)
    except OSError as error:
        raise LabError(f"An upload cannot be deleted ({os_reason(error)}: {error.filename or root()}): check the "
                       "folder's permissions, then clean up again.") from error
    return freed


def _unused(named: Iterable[str]) -> list[str]:
    needed = _needed((*named, *_on_disk()))
    ages = {folder.name: _age(folder) for folder in root().glob("*") if is_place(folder.name)}
    return sorted((name for name, age in ages.items() if age >= YOUNG_SECONDS and name not in needed),
                  key=lambda name: -ages[name])


def _needed(named: Iterable[str]) -> set[str]:
    """The names of all places that these files are in, among other words."""
    return {part for path in {*named} for part in _parts(path)}


def _age(folder: Path) -> float:
    """Seconds since anything at a place was last written or used; 0 where somebody else deletes it."""
    try:
        return time.time() - max(path.lstat().st_mtime for path in (folder, *folder.rglob("*")))
    except FileNotFoundError:
        return 0.0


def _parts(path: str) -> list[str]:
    """The names of all folders on the way to a file, as it was named and where links lead.

    Whatever stands in front of a place's name, it is that place: a lab may have been moved since, or be mounted.
    """
    with suppress(OSError, ValueError):  # another store's spec may name anything
        path = f"{path}/{Path(path).resolve()}"
    return re.split(r"[/\\]", path)


def _on_disk() -> Iterator[str]:
    """The uploads in use: those named by runs in this folder, even if the store does not know the run (it may belong to
    another store), and the files of imports."""
    yield from imported.sources()
    for pattern in ("*/spec.json", f"*/{START}/spec.json"):
        for file in home().glob(pattern):
            with suppress(OSError, ValueError, AttributeError):
                yield from uploads.of_spec(json_of(file.read_bytes(), constants=True))
