"""The user's own files, kept once by the hash of their content, so that a run can be repeated after the file moved."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from labcore.errors import LabError
from labcore.runs.paths import home, made


def place(content: bytes) -> Path:
    """The folder in which what has this content is kept."""
    return home() / "uploads" / hashlib.sha256(content).hexdigest()[:16]


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
