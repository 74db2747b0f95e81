"""The user's own files, kept once by the hash of their content, so that a run can be repeated after the file moved."""

from __future__ import annotations

import hashlib
from pathlib import Path

from labcore.errors import LabError
from labcore.runs.paths import home, made


def keep(name: str, content: bytes) -> Path:
    """Store an upload as uploads/<hash>/<its name>, so that messages can call it by its name."""
    folder = made(home() / "uploads" / hashlib.sha256(content).hexdigest()[:16])
    target = folder / (Path(name.replace("\\", "/")).name or "upload")
    if not target.exists():
        part = target.with_suffix(".part")
        part.write_bytes(content)
        part.replace(target)
    return target


def keep_file(path: Path, limit: int) -> Path:
    """Store a copy of the file at `path`.

    Raises:
        LabError: it is not there, or larger than `limit` bytes.
    """
    if not path.is_file():
        raise LabError(f"There is no file {path}: check the path.")
    if path.stat().st_size > limit:
        raise LabError(f"{path.name} has {path.stat().st_size / 1e6:.0f} MB, more than the {limit / 1e6:.0f} MB that a "
                       "run can read: cut it into smaller files.")
    return keep(path.name, path.read_bytes())
