"""Deletes folders of the lab and nothing else: no link is followed, on the way to a folder or inside it.

What to delete is named by stores, links and folders that anybody may have written. `labcore.runs.files.paths.is_id`
keeps a name from leading elsewhere; this module keeps a link from doing so, at the moment of deletion.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from labcore.errors import LabError
from labcore.runs.files.paths import check_writable, home

_FOLDER = getattr(os, "O_DIRECTORY", 0)
_NO_LINK = _FOLDER | getattr(os, "O_NOFOLLOW", 0)
_BY_DESCRIPTOR = {os.open, os.stat, os.unlink, os.rmdir} <= os.supports_dir_fd  # not on Windows


def remove(path: Path, below: Path | None = None) -> None:
    """Delete a folder or a file within the folder `below`, which is the lab's home by default. Of a link at `path` only
    the link goes. Does nothing where there is nothing.

    Raises:
        LabError: `path` is not within `below`, or a folder between them is a link; or the lab is shared for reading.
        OSError: it cannot be deleted.
    """
    check_writable()
    root = home() if below is None else below
    parts = path.relative_to(root).parts if path.is_relative_to(root) else ()
    if not parts or ".." in parts:
        raise LabError(f"{path} is not inside {root}, so the lab does not delete it: delete it yourself.")
    with ExitStack() as stack:
        folder: int | None = None
        place = root
        try:
            for place in (root, *(root.joinpath(*parts[:end]) for end in range(1, len(parts)))):
                folder = _entered(stack, place, folder, follow=place == root)
            _remove(path, folder)
        except FileNotFoundError:
            return


def _entered(stack: ExitStack, place: Path, parent: int | None, follow: bool) -> int | None:
    """A descriptor of the folder `place`, whose parent is open as `parent`; None where the system has none."""
    if not follow and stat.S_ISLNK(_mode(place, parent)):
        raise LabError(f"The folder {place} is a link, and the lab deletes nothing beyond a link: delete it yourself.")
    if not _BY_DESCRIPTOR:
        return None
    name, flags = (place, _FOLDER) if parent is None else (place.name, _NO_LINK)
    found = os.open(name, os.O_RDONLY | flags, dir_fd=parent)
    stack.callback(os.close, found)
    return found


def _remove(path: Path, folder: int | None) -> None:
    name = path if folder is None else path.name
    if stat.S_ISDIR(_mode(path, folder)):
        shutil.rmtree(name, dir_fd=folder)  # which refuses a link that has taken the folder's place meanwhile
    else:
        os.unlink(name, dir_fd=folder)


def _mode(path: Path, folder: int | None) -> int:
    return os.stat(path if folder is None else path.name, dir_fd=folder, follow_symlinks=False).st_mode


# ---------------------------------------------------------------- temporary
# Temporary folders that do not outlive their process, however it ended.
#
# A process that is killed removes nothing. So each folder holds a lock for as long as its process lives, and whoever
# makes the next one removes those whose lock is free.

_LOCK = ".in-use"
_YOUNG = 60.0  # seconds in which a folder may not have its lock yet


@contextmanager
def folder(what: str) -> Iterator[Path]:
    """A temporary folder for `what`, a word; earlier ones that killed processes left are removed first."""
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
