"""The files below a folder, listed every second: a folder is read again only if its modification time changed."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from labcore.watch.following.growing import stamp

DEEPEST = 8
MOST = 50_000  # files
RECENT = 3.0  # seconds in which a folder may change without a new modification time, because file systems round it
_SKIPPED = ("node_modules", "__pycache__")


@dataclass
class _Listing:
    changed: int
    files: list[str]
    folders: list[str]


@dataclass
class Folder:
    """A folder and its subfolders, without hidden folders and links to folders."""

    path: Path
    _seen: dict[str, _Listing] = field(default_factory=dict)

    def files(self) -> list[str]:
        """Return the relative path of each file."""
        found: list[str] = []
        waiting = [("", 0)]
        while waiting and len(found) < MOST:
            name, depth = waiting.pop()
            listing = self._listing(name)
            found += listing.files
            if depth < DEEPEST:
                waiting += [(each, depth + 1) for each in listing.folders]
        return found

    def _listing(self, name: str) -> _Listing:
        path = self.path / name
        now = stamp(path)
        before = self._seen.get(name)
        if now is None:
            return _Listing(0, [], [])
        if before is None or now.changed != before.changed or time.time() - now.changed / 1e9 < RECENT:
            before = self._seen[name] = _listed(path, name, now.changed)
        return before


def _listed(path: Path, name: str, changed: int) -> _Listing:
    files, folders = list[str](), list[str]()
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                inner = f"{name}/{entry.name}" if name else entry.name
                if entry.name.startswith(".") or entry.name in _SKIPPED:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(inner)
                elif entry.is_file():
                    files.append(inner)
    except OSError:  # it was deleted, or is not readable
        return _Listing(0, [], [])
    return _Listing(changed, sorted(files), sorted(folders))
