"""Uploads that no run names any more: which there are, and how they are deleted.

A file is uploaded before the run that it is for is made: so what was uploaded, or used again, less than a day ago
always stays.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from labcore.compare import imported
from labcore.errors import LabError, os_reason
from labcore.files import sizes, uploads
from labcore.files.artifacts import things
from labcore.files.artifacts.deletion import deleted
from labcore.files.given import json_of
from labcore.files.paths import home
from labcore.files.removal import remove as remove_folder
from labcore.files.uploads import is_place, root
from labcore.store.store import Store

YOUNG_SECONDS = 86_400.0
_GONE = ".gone-"  # how the name of a folder begins that is being deleted


def unused(store: Store) -> list[str]:
    """The names of the places that no run needs: none of the store, in the trash or not, and none of this folder.

    What is young is left out (see the module); the oldest comes first.
    """
    return _unused(store.files())


def remove(store: Store, places: Iterable[str]) -> dict[str, int]:
    """Delete those of `places` that still no run needs. Returns the bytes of each that went. There is no way back.

    Raises:
        LabError: one cannot be deleted; it is whole, or it is gone for every run.
    """
    try:
        chosen = {*places} & {*unused(store)}  # reads every spec, for which no writer is to wait
        with store.files_held() as named:  # meanwhile no run is added
            chosen -= _needed(named)
            gone = {name: root() / f"{_GONE}{name}-{uuid4().hex}" for name in chosen
                    if _age(root() / name) >= YOUNG_SECONDS}
            for name, folder in gone.items():
                (root() / name).rename(folder)
        for name in gone:
            deleted(root() / name)
        freed = {name: sizes.size(folder) for name, folder in gone.items()}
        for folder in root().glob(f"{_GONE}*"):  # also what an earlier clean-up could not delete
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
    """What the runs of this folder name, also those that the store does not know, which may have had another one, and
    the files of what was imported."""
    yield from imported.sources()
    for pattern in ("*/spec.json", f"*/{things.START}/spec.json"):
        for file in home().glob(pattern):
            with suppress(OSError, ValueError, AttributeError):
                yield from uploads.of_spec(json_of(file.read_bytes(), constants=True))
