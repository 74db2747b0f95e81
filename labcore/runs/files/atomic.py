"""Files and folders that are either complete or not there: written under another name, then renamed.

The other name begins with a dot and is in the same folder, so that the renaming is one step. Appended lines are written
to the disk one by one; half a line, which a power cut may leave, is never read as a whole line.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from filelock import FileLock

from labcore.runs.files.untrusted import json_of, whole


def write_folder(target: Path, fill: Callable[[Path], Any], *, replace: bool = False, sync: bool = True) -> None:
    """Make the folder `target` with the content that `fill(folder)` writes: all of it or nothing.

    With `replace`, an existing folder is deleted once the new one is complete. With `sync` the folder survives a power
    cut. Raises OSError if it cannot be written, or `target` exists already; nothing is left of the attempt.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        unfinished.chmod(0o755)  # mkdtemp's own is for one user only
        fill(unfinished)
        for folder, _, files in os.walk(unfinished) if sync else ():
            for name in files:
                _sync(os.path.join(folder, name))
            _sync(folder)
        if replace and target.exists():
            shutil.rmtree(target)
        unfinished.rename(target)
    except BaseException:
        shutil.rmtree(unfinished)
        raise
    if sync:
        _sync(target.parent)


def write_into(folder: Path, fill: Callable[[Path], Any]) -> None:
    """Add to `folder`, which is created if needed, the files that `fill(another folder)` writes; none until all are
    complete.

    Files of the same names are replaced, one after the other; all other files stay. A new folder appears in one step.
    Raises OSError if it cannot be written; nothing is left of the attempt, nor of folders created for it.
    """
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        if not folder.exists():
            return write_folder(folder, fill, sync=False)
        with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=folder) as unfinished:
            fill(Path(unfinished))
            for path in Path(unfinished).iterdir():
                target = folder / path.name
                if target.is_dir() and not target.is_symlink():
                    shutil.rmtree(target)
                path.replace(target)
    except BaseException:
        for each in new:
            with suppress(OSError):  # another process has written into it meanwhile
                each.rmdir()
        raise


def write_output(target: Path, fill: Callable[[Path], Any]) -> None:
    """`write_file` to a path that a user names. A device, a pipe or a link is written through instead of being
    replaced. Raises OSError if it cannot be written."""
    if target.is_symlink() or (target.exists() and not target.is_file()):
        fill(target)
    else:
        write_file(target, fill)


def write_file(target: Path, fill: Callable[[Path], Any], *, sync: bool = False) -> None:
    """Make or replace the file `target` by `fill(path)`: a reader finds the old content or the new one.

    With `sync`, for files that cannot be made again, it survives a power cut. Raises OSError if it cannot be written;
    nothing is left of the attempt.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{uuid4().hex}.part")
    try:
        fill(unfinished)
        if sync:
            _sync(unfinished)
        unfinished.replace(target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    if sync:
        _sync(target.parent)


def write_bytes(target: Path, content: bytes, *, sync: bool = False) -> None:
    """`write_file` with this content."""
    write_file(target, lambda path: path.write_bytes(content), sync=sync)


def write_text(target: Path, text: str, *, sync: bool = False) -> None:
    """`write_file` with this text as UTF-8, half characters replaced."""
    write_bytes(target, whole(text).encode(), sync=sync)


def link(source: Path | str, target: Path | str) -> None:
    """Make the file at `target` a link to `source`, which takes no disk space; if the disk has no links, a copy."""
    try:
        os.link(source, target)
    except OSError:  # another disk, or one that knows no links
        shutil.copy2(source, target)


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """Add a line of JSON to `path`, and have it on the disk. Several processes may do so at once.

    An incomplete line of an interrupted writer is cut off first. A complete row that only lacks its line end, as some
    editors leave it, gets one and stays.
    """
    line = json.dumps(row, ensure_ascii=False) + "\n"
    with FileLock(f"{path}.lock"), path.open("a+b") as file:
        file.seek(0)
        tail = (there := file.read())[there.rfind(b"\n") + 1:]
        if tail and _row(tail) is None:
            file.truncate(len(there) - len(tail))
        elif tail:
            file.write(b"\n")
        file.write(whole(line).encode())
        file.flush()
        os.fsync(file.fileno())


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows that `append_row` wrote to `path`; none where there is no such file."""
    for line in path.read_bytes().split(b"\n") if path.exists() else ():
        if (row := _row(line)) is not None:  # otherwise a power cut interrupted its writer
            yield row


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json_of(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _sync(path: str | Path) -> None:
    folder = os.path.isdir(path)
    if folder and os.name != "posix":
        return  # only POSIX can open a folder
    descriptor = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
