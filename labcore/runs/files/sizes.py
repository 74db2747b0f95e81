"""Disk space of files and folders."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def size(path: Path | str) -> int:
    """Bytes of a file, or of all files below a folder; 0 where there is nothing.

    A file with several names in the folder counts once. A symbolic link counts as the link, not as its target,
    and what vanishes meanwhile counts as nothing.
    """
    return _size(path, set())


def _size(path: Path | str, seen: set[tuple[int, int]]) -> int:
    with suppress(FileNotFoundError):
        try:
            with os.scandir(path) as entries:
                return sum(_size(entry.path, seen) if entry.is_dir(follow_symlinks=False) else _own(entry, seen)
                           for entry in entries)
        except NotADirectoryError:
            return os.lstat(path).st_size
    return 0


def _own(entry: os.DirEntry[str], seen: set[tuple[int, int]]) -> int:
    with suppress(FileNotFoundError):
        found = entry.stat(follow_symlinks=False)
        if found.st_nlink > 1:
            if (found.st_dev, found.st_ino) in seen:
                return 0
            seen.add((found.st_dev, found.st_ino))
        return found.st_size
    return 0
