"""The user's own files, kept once by the hash of their content, so that a run can be repeated after the file moved.

What no run names any more can be deleted. A file is put here before the run that it is for is made: so what was put
here, or used again, less than a day ago always stays.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from labcore.errors import LabError
from labcore.files import checkpoints as checkpoint
from labcore.files.paths import home, made
from labcore.store.keeping import Keeping

YOUNG_SECONDS = 86_400.0
_GONE = ".gone-"  # how the name of a folder begins that is being deleted


def root() -> Path:
    """Where all of them are kept; not made here."""
    return home() / "uploads"


def place(content: bytes) -> Path:
    """The folder in which what has this content is kept."""
    return root() / hashlib.sha256(content).hexdigest()[:16]


def use(folder: Path) -> None:
    """Have a place count as young: a run is about to be made that needs it."""
    with suppress(OSError):  # it may not be ours, or on a disk that nobody may write to
        os.utime(folder)


def keep(name: str, content: bytes) -> Path:
    """Store an upload as uploads/<hash>/<its name>, so that messages can call it by its name.

    Raises:
        LabError: it cannot be written.
    """
    folder = made(place(content))
    target = folder / (Path(name.replace("\\", "/")).name or "upload")
    try:
        if not target.exists():
            part = target.with_name(f".{os.getpid()}.part")
            part.write_bytes(content)
            part.replace(target)
        use(folder)
    except OSError as error:
        raise LabError(f"{name} cannot be kept in {folder} ({error.strerror}): free some space, or set RL_LAB_HOME to "
                       "a folder that you may write to.") from error
    return target


def keep_file(path: Path, limit: int) -> Path:
    """Store a copy of the file at `path`.

    Raises:
        LabError: it is not there, or larger than `limit` bytes.
    """
    if path.is_dir():
        raise LabError(f"{path} is a folder: give a file.")
    if not path.is_file():
        raise LabError(f"There is no file {path}: check the path.")
    if path.stat().st_size > limit:
        raise LabError(f"{path.name} has {path.stat().st_size / 2**20:.0f} MB, above the limit of {limit // 2**20} MB: "
                       "give a part of it.")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise LabError(f"The file {path} cannot be read ({error.strerror}): check its permissions.") from error
    return keep(path.name, content)


def check(paths: Iterable[str]) -> None:
    """Raise LabError where one of these files or folders was kept here and has been deleted."""
    for path in paths:
        if root() in Path(path).absolute().parents and not Path(path).exists():
            raise LabError(f"{Path(path).name} was deleted by a clean-up meanwhile, since no run named it: upload it "
                           "again.")


def unused(store: Keeping) -> list[str]:
    """The names of the places that no run needs: none of the store, in the trash or not, and none of this folder.

    What is young is left out (see the module); the oldest comes first.
    """
    return _unused(store.files())


def names(place: str) -> list[str]:
    """What is kept at a place: the names of its files, or "model" for weights that came with a capsule."""
    return sorted(path.name for path in (root() / place).glob("*"))


def size(place: str) -> int:
    """Bytes of a place."""
    return checkpoint.size(root() / place)


def remove(store: Keeping, places: Iterable[str]) -> dict[str, int]:
    """Delete those of `places` that still no run needs. Returns the bytes of each that went. There is no way back.

    Raises:
        OSError: one cannot be deleted; it is whole, or it is gone for every run.
    """
    with store.files_held() as named:  # meanwhile no run is added
        gone = {name: root() / f"{_GONE}{name}-{uuid4().hex}" for name in _unused(named) if name in set(places)}
        for name, folder in gone.items():
            (root() / name).rename(folder)
    freed = {name: checkpoint.size(folder) for name, folder in gone.items()}
    for folder in root().glob(f"{_GONE}*"):  # also what an earlier clean-up could not delete
        shutil.rmtree(folder)
    return freed


def _unused(named: Iterable[str]) -> list[str]:
    needed, now = {part for path in (*named, *_on_disk()) for part in _parts(path)}, time.time()
    ages = {folder.name: now - _touched(folder) for folder in root().glob("*") if not folder.name.startswith(".")}
    return sorted((name for name, age in ages.items() if age >= YOUNG_SECONDS and name not in needed),
                  key=lambda name: -ages[name])


def _touched(folder: Path) -> float:
    """When anything at a place was last written or used; this very moment where somebody else deletes it."""
    try:
        return max(path.lstat().st_mtime for path in (folder, *folder.rglob("*")))
    except FileNotFoundError:
        return time.time()


def _parts(path: str) -> list[str]:
    """The names of all folders on the way to a file, as it was named and where links lead.

    Whatever stands in front of a place's name, it is that place: a lab may have been moved since, or be mounted.
    """
    with suppress(OSError, ValueError):  # another store's spec may name anything
        path = f"{path}/{Path(path).resolve()}"
    return re.split(r"[/\\]", path)


def _on_disk() -> Iterator[str]:
    """What the runs of this folder name, also those that the store does not know: it may have had another one."""
    for pattern in ("*/spec.json", f"*/{checkpoint.START}/spec.json"):
        for file in home().glob(pattern):
            with suppress(OSError, ValueError):
                fields = json.loads(file.read_text(encoding="utf-8"))
                yield from filter(None, (fields.get("data"), fields.get("model")))
