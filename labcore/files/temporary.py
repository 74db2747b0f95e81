"""Temporary folders that do not outlive their process, however it ended.

A process that is killed removes nothing. So each folder holds a lock for as long as its process lives, and whoever
makes the next one removes those whose lock is free.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from labcore.errors import LabError
from labcore.files.removal import remove

_LOCK = ".in-use"
_YOUNG = 60.0  # seconds in which a folder may not have its lock yet


@contextmanager
def folder(what: str) -> Iterator[Path]:
    """A temporary folder for `what`, a word; those of it that killed processes left are removed before."""
    prefix = f"rl-lab-{what}-"
    _remove_left(prefix)
    with tempfile.TemporaryDirectory(prefix=prefix) as place, FileLock(Path(place) / _LOCK):
        (content := Path(place) / what).mkdir()
        yield content


def _remove_left(prefix: str) -> None:
    for place in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError, Timeout, LabError):  # another user's, or in use; or nothing is deleted in this lab
            if time.time() - place.stat().st_mtime > _YOUNG and (place / _LOCK).exists():
                with FileLock(place / _LOCK, timeout=0):
                    remove(place, place.parent)
