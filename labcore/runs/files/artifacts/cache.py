"""Bound the disk space of a home that has an object store: the files used longest ago are deleted once the store has
them.

Only published files are deleted, never those of a queued or running run or those used within the last hour, even if the
limit is exceeded. The small files of a run stay.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from filelock import FileLock, Timeout

from labcore.errors import LabError, quoted
from labcore.runs.files import sizes
from labcore.runs.files.artifacts import changes, manifest, object_store
from labcore.runs.files.artifacts import units as things
from labcore.runs.files.artifacts.changes import changed
from labcore.runs.files.artifacts.object_store import ObjectStore
from labcore.runs.files.paths import CHECKPOINTS, PICTURES, START, home
from labcore.runs.files.removal import remove
from labcore.runs.files.storage import CACHE_GB, CACHE_VARIABLE, Damaged

USED_SECONDS = 3600.0  # a process may read a file for this long after fetching it
LOOK_SECONDS = 60.0  # between two looks at the whole home: runs may end every second


@dataclass(frozen=True)
class _Kept:
    """A folder of this home, of one unit, by when it was last used."""

    used: float
    path: Path
    unit: str
    size: int


def limit() -> float:
    """The bound in bytes: `RL_LAB_CACHE_GB`, else 50 GB. Raises LabError where it is no number above 0."""
    text = os.environ.get(CACHE_VARIABLE, "").strip()
    try:
        found = float(text) if text else CACHE_GB
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise LabError(f"{CACHE_VARIABLE} is {quoted(text)}: set it to the gigabytes that the lab's folder may take, "
                       f"such as {CACHE_GB:g}.")
    return found * 1e9


def trim(going: Callable[[], Container[str]]) -> int:
    """Delete published files until the cache is within its limit. Returns the bytes that were deleted. `going()` are
    the runs that a process has or will have; their files stay.

    Does nothing if another process looked within the last minute. Raises LabError if the store is away, or the limit is
    not a number above 0.
    """
    try:
        with FileLock(changes.lock("trim"), timeout=0):
            return _trim(object_store.opened(), limit(), going) if _due() else 0
    except Timeout:  # another process is at it
        return 0


def _trim(store: ObjectStore, most: float, going: Callable[[], Container[str]]) -> int:
    kept = sorted(_kept(), key=lambda each: each.used)
    over, freed = sum(each.size for each in kept) - most, 0
    live = going() if over > 0 else ()
    for each in kept:
        if freed >= over:
            break
        if each.unit not in live and _published(store, each.unit) and _drop(each.path):
            freed += each.size
    with suppress(OSError):
        remove(_dropped())  # also folders that a killed process left
    return freed


def _published(store: ObjectStore, unit: str) -> bool:
    """True if the store has a unit. A base or an upload may have been deleted there by another home, in which nothing
    named it: what may be the last copy stays, and is published again."""
    if not changes.is_published(unit, store.begin()):
        return False
    with suppress(Damaged):
        if things.is_run(unit) or manifest.read(store, unit):
            return True
    changed(things.folder(unit))
    return False


def _drop(path: Path) -> bool:
    """Take a folder out of its place, unless somebody has used it."""
    with FileLock(changes.lock("cache")), suppress(FileNotFoundError):
        if time.time() - path.stat().st_mtime < USED_SECONDS:
            return False
        _dropped().mkdir(parents=True, exist_ok=True)
        path.rename(_dropped() / uuid4().hex)
        return True
    return False


def _kept() -> Iterator[_Kept]:
    """The units that may be deleted: bases, uploads, checkpoints and pictures. A run's other files are small."""
    units = [path for name in ("base", "uploads") for path in (home() / name).glob("[!.]*") if path.is_dir()]
    runs = [path for path in home().glob("[!.]*") if things.unit_with(path) and path.is_dir()]
    parts = [part for run in runs for part in (*(run / CHECKPOINTS).glob("[!.]*"),
                                               *(run / name for name in (START, *PICTURES)))]
    for path in (*units, *parts):
        with suppress(FileNotFoundError):  # pruned meanwhile
            unit = things.unit_with(path)
            if unit:
                yield _Kept(path.stat().st_mtime, path, unit, sizes.size(path))


def _due() -> bool:
    looked = home() / changes.FOLDER / "looked"
    with suppress(FileNotFoundError):
        if 0 <= time.time() - looked.stat().st_mtime < LOOK_SECONDS:
            return False
    looked.touch()
    return True


def _dropped() -> Path:
    return home() / changes.FOLDER / "dropped"
