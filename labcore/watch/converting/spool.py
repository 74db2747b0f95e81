"""Read the files of a watched run, `RL_LAB_HOME/watched/ID/spool/TIME-WRITER-NUMBER.jsonl`, in the order of their
names.

Each process that writes to a run has its own files, a new one after some megabytes. A line counts when it is complete.
A file that was read to its end is deleted when its writer has started the next one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labcore.runs.files.paths import home, named
from labcore.runs.files.untrusted import NotJSON, json_of

WATCHED, SPOOL, ABOUT = "watched", "spool", "run.json"
ASKED = "asked.json"  # the lab's request to the trainer, which may ignore it
GONE = "gone"  # a file with the writers of a deleted run, for the response to their clients
LINE_BYTES = 16 * 2**20  # a longer line is invalid
AT_ONCE = 2**20  # bytes that are read at once, or one line
_NAME = re.compile(r"(?P<time>\d{1,20})-(?P<writer>\w{1,40})-(?P<number>\d{1,9})\.jsonl")


@dataclass(frozen=True)
class Line:
    """A line of the file `file` that ends at the byte `end`. `said` is its object; `fault` is the error if the line is
    invalid."""

    file: str
    writer: str
    end: int
    said: Mapping[str, Any]
    fault: str = ""


def root() -> Path:
    """Return the folder of watched runs. Its modification time changes whenever a client writes."""
    return home() / WATCHED


def folder_of(name: str) -> Path:
    """Return the folder of a watched run. Raises LabError if the name is not an id."""
    return named(name, root())


def is_file(name: str) -> bool:
    """True if this can be the name of a file in a spool."""
    return _NAME.fullmatch(name) is not None


def writer_of(name: str) -> str:
    """Return the writer of a file in a spool."""
    found = _NAME.fullmatch(name)
    assert found is not None, "is_file"
    return found["writer"]


def begins(name: str) -> bool:
    """True if a file is the first of its writer."""
    found = _NAME.fullmatch(name)
    return found is not None and not int(found["number"])


def files(folder: Path) -> list[Path]:
    """The files of a spool, in the order in which they are read: no links, which are read, cut and deleted as well."""
    try:
        with os.scandir(folder / SPOOL) as entries:
            return sorted(Path(entry.path) for entry in entries
                          if is_file(entry.name) and entry.is_file(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return []


def lines(folder: Path, at: Mapping[str, int]) -> tuple[list[Line], bool]:
    """Return the next lines of a spool from the byte offset `at` of each file, and whether there are more."""
    found: list[Line] = []
    room = AT_ONCE
    for path in files(folder):
        with path.open("rb") as file:
            start = file.seek(at.get(path.name, 0))
            for line in _lines_of(path.name, start, file, room):
                found.append(line)
                room -= line.end - start
                start = line.end
                if room <= 0:
                    return found, True
    return found, False


def _lines_of(name: str, start: int, file: Any, room: int) -> Iterator[Line]:
    """Yield the complete lines from `start` on. A line that is too long is skipped; an incomplete line is not read."""
    writer = writer_of(name)
    while room > 0 and (raw := file.readline(LINE_BYTES + 1)):
        end, whole = start + len(raw), raw.endswith(b"\n")
        if not whole and len(raw) > LINE_BYTES:
            while raw and not raw.endswith(b"\n"):
                raw = file.readline(LINE_BYTES)
                end += len(raw)
            if not raw:
                return
            yield Line(name, writer, end, {}, f"a line of {name} is longer than {LINE_BYTES // 2**20} MB")
        elif not whole:
            return
        elif raw.strip():
            yield _line(name, writer, end, raw)
        room -= end - start
        start = end


def _line(name: str, writer: str, end: int, raw: bytes) -> Line:
    try:
        said = json_of(raw, constants=True)
    except NotJSON as error:
        return Line(name, writer, end, {}, f"the line of {name} that ends at byte {end:,} is not JSON ({error})")
    if not isinstance(said, dict) or not isinstance(said.get("kind"), str):
        return Line(name, writer, end, {}, f"the line of {name} that ends at byte {end:,} is not an object with a kind")
    return Line(name, writer, end, said)


def unfinished(folder: Path, at: Mapping[str, int]) -> str:
    """Return the newest file with an incomplete last line, as after a crash of its writer; usually empty."""
    return next((path.name for path in reversed(files(folder)) if path.stat().st_size > at.get(path.name, 0)), "")


def forget_read(folder: Path, at: Mapping[str, int]) -> dict[str, int]:
    """Delete fully read files except the newest of each writer. Returns the read positions of the remaining files."""
    newest = {writer_of(path.name): path for path in files(folder)}
    for path in files(folder):
        if path != newest[writer_of(path.name)] and path.stat().st_size <= at.get(path.name, 0):
            path.unlink()
    return {path.name: at[path.name] for path in files(folder) if path.name in at}


def give_back(folder: Path, at: Mapping[str, int]) -> None:
    """Free the disk space of fully read files when no more lines are expected. Their size stays the same, because the
    responses to clients depend on it and lines may still be added."""
    for path in files(folder):
        size = path.stat().st_size
        if size <= at.get(path.name, 0) and os.name == "posix" and path.stat().st_blocks:
            os.truncate(path, 0)
            os.truncate(path, size)


def forget(folder: Path) -> None:
    """Delete the files of a run that was deleted permanently. Another process may reuse its id."""
    found = files(folder)
    if writers := {writer_of(path.name) for path in found} - gone(folder):
        with (folder / GONE).open("a", encoding="utf-8") as file:
            file.writelines(f"{writer}\n" for writer in sorted(writers))
    for path in found:
        path.unlink(missing_ok=True)


def asked(folder: Path) -> dict[str, Any]:
    """Return the lab's request to a trainer; usually empty."""
    try:
        found = json_of((folder / ASKED).read_bytes())
    except (FileNotFoundError, NotJSON):
        return {}
    return found if isinstance(found, dict) else {}


def gone(folder: Path) -> set[str]:
    """Return the writers of a run that was deleted permanently."""
    try:
        return {*(folder / GONE).read_text("utf-8").split()}
    except FileNotFoundError:
        return set()
