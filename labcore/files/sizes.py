"""What files take on the disk."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def size(path: Path | str) -> int:
    """Bytes of a file, or of all files below a folder; 0 where there is nothing.

    Symbolic links count as themselves, not as what they lead to, and what vanishes meanwhile counts as nothing.
    """
    with suppress(FileNotFoundError):
        try:
            with os.scandir(path) as entries:
                return sum(size(entry.path) if entry.is_dir(follow_symlinks=False) else _own(entry)
                           for entry in entries)
        except NotADirectoryError:
            return os.lstat(path).st_size
    return 0


def _own(entry: os.DirEntry[str]) -> int:
    with suppress(FileNotFoundError):
        return entry.stat(follow_symlinks=False).st_size
    return 0
