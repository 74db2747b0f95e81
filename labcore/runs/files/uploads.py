"""The user's own files, kept once by the hash of their content, so that a run can be repeated after the file moved.

`labcore.runs.lists.cleanup` deletes what no run names any more.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from labcore.errors import LabError, os_reason
from labcore.runs.files import atomic, sizes, storage, untrusted
from labcore.runs.files.paths import home, made

MOST_NAME = 200  # bytes of a file's name


def root() -> Path:
    """Where all of them are kept; not made here."""
    return home() / "uploads"


def place(content: bytes) -> Path:
    """The name of the folder for a file with this content."""
    return root() / hashlib.sha256(content).hexdigest()[:16]


def use(folder: Path) -> None:
    """Mark a place as just used, because a run that needs it is about to be made."""
    with suppress(OSError):  # another user may own it, or the disk may be read-only
        os.utime(folder)


def keep(name: str, content: bytes) -> Path:
    """Store an upload as uploads/<hash>/<its name>, so that messages can call it by its name. Raises LabError if it
    cannot be written."""
    folder = made(place(content))
    target = folder / _file_name(name)
    try:
        if not target.exists():
            atomic.write_bytes(target, content, sync=True)
        use(folder)
        storage.publish_now(folder)
    except OSError as error:
        raise LabError(f"{name} cannot be kept in {folder} ({os_reason(error)}): free some space, or set RL_LAB_HOME "
                       "to a folder that you may write to.") from error
    return target


def _file_name(name: str) -> str:
    """The name of an upload on the disk: the last part of its name, of which a long one keeps its end."""
    last = re.sub(r"[\x00-\x1f\x7f]", "_", re.split(r"[/\\]", untrusted.whole(name).rstrip("/\\"))[-1])
    return last.encode()[-MOST_NAME:].decode("utf-8", "ignore").lstrip(".") or "upload"


def keep_file(path: Path, limit: int) -> Path:
    """Store a copy of the file at `path`. Raises LabError as `untrusted.read`."""
    return keep(path.name, untrusted.read(path, limit))


def file_at(place: str) -> Path | None:
    """The file that is kept at a place; None where there is none, or no such place."""
    return next(storage.fetch(root() / place).glob("[!.]*"), None) if is_place(place) else None


def is_kept(place: str) -> bool:
    """True if a file is kept at a place, here or published. Fetches nothing."""
    folder = root() / place
    return is_place(place) and (any(folder.glob("[!.]*")) if folder.is_dir() else storage.has(folder))


NAMED_BY = ("labelled_pairs", "held_out_file")  # knobs of a run that name a place


def of_spec(fields: Mapping[str, Any]) -> list[str]:
    """The files, models and places that the spec of a run names, by its JSON."""
    knobs = fields.get("knobs", {})
    return [found for found in (fields.get("data"), fields.get("model"), *map(knobs.get, NAMED_BY)) if found]


def is_place(name: str) -> bool:
    """True if a place can be called so."""
    return re.fullmatch(r"[0-9a-f]{16}", name) is not None


def check(paths: Iterable[str]) -> list[str]:
    """Raise LabError if one of these files or folders was kept here and has been deleted, or if a store that may have
    it is away.

    Returns those that are on this machine's disk, where a clean-up of this home could delete them: checking these again
    needs no request to the object store.
    """
    kept = [path for path in paths if root() in Path(path).absolute().parents]
    for path in kept:
        if not storage.has(path, sure=True):
            raise LabError(f"{Path(path).name} was deleted by a clean-up, since no run used it: upload it again.")
    return [path for path in kept if Path(path).exists()]


def names(place: str) -> list[str]:
    """The names of the files at a place: the names of its files, or "model" for weights that came with a capsule."""
    return sorted(path.name for path in (root() / place).glob("*"))


def size(place: str) -> int:
    """Bytes of a place."""
    return sizes.size(root() / place)
