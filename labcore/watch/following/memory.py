"""The state of a follower, saved as JSON in `RL_LAB_HOME/following`. One process at a time follows a folder."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from filelock import FileLock, Timeout

from labcore.errors import LabError
from labcore.runs.files import atomic
from labcore.runs.files.paths import FOLLOWING, home, made
from labcore.runs.files.untrusted import NotJSON, read_json
from labcore.watch.following.reader import Memory

_LIMIT = 256 * 2**20  # bytes
_FORMAT = 1


class Kept:
    """The saved state of one folder. Raises LabError if another process follows the folder, or the saved state is
    damaged."""

    def __init__(self, folder: Path):
        digest = hashlib.sha256(str(folder.absolute()).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self._path = made(home() / FOLLOWING) / f"{digest}.json"
        self._lock = FileLock(self._path.with_suffix(".lock"))
        try:
            self._lock.acquire(blocking=False)
        except Timeout as error:
            raise LabError(f"Another process already follows {folder}: stop it first.") from error
        self._memory: Memory = {"format": _FORMAT, "folder": str(folder.absolute())}
        if self._path.exists():
            self._memory = self._read(folder)

    def _read(self, folder: Path) -> Memory:
        again = f"delete it to read {folder} from the start"
        try:
            found = read_json(self._path, _LIMIT, constants=True)
        except NotJSON as error:
            raise LabError(f"{self._path} is damaged ({error}): {again}.") from error
        if not isinstance(found, dict) or found.get("format") != _FORMAT:
            raise LabError(f"{self._path} was written by another version of the lab: {again}.")
        return found

    def of(self, kind: str, name: str) -> Memory:
        """Return the state of a file, a log or a run, which callers change in place."""
        found: Memory = self._memory.setdefault(kind, {}).setdefault(name, {})
        return found

    def write(self) -> None:
        """Save the state. Raises LabError if it cannot be written."""
        try:
            atomic.write_text(self._path, json.dumps(self._memory))
        except OSError as error:
            raise LabError(f"{self._path} cannot be written ({error.strerror}): free some space.") from error

    def close(self) -> None:
        """Release the folder for other processes."""
        self._lock.release()
