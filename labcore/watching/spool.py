"""Read the files of a watched run, `RL_LAB_HOME/watched/ID/spool/TIME-WRITER-NUMBER.jsonl`, by the order of names.

Each process that writes to a run has files of its own, a new one after some megabytes. A line counts when its end is
there. A file that was read to its end is deleted once its writer has begun the next one.
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
ASKED = "asked.json"  # what the lab asks of the program, which need not obey
GONE = "gone"  # a file that names the writers of a run that was deleted: a program elsewhere is told
LINE_BYTES = 16 * 2**20  # a longer line is no line of ours
AT_ONCE = 2**20  # bytes that are read at once, or one line
_NAME = re.compile(r"(?P<time>\d{1,20})-(?P<writer>\w{1,40})-(?P<number>\d{1,9})\.jsonl")


@dataclass(frozen=True)
class Line:
    """A line of the file `file`, which ends at the byte `end`. `said` is its object, or in `fault` why it is none."""

    file: str
    writer: str
    end: int
    said: Mapping[str, Any]
    fault: str = ""


def root() -> Path:
    """Where watched runs are written. The time of this folder changes whenever one of them writes."""
    return home() / WATCHED


def folder_of(name: str) -> Path:
    """The folder of a watched run. Raises LabError where the name is no id."""
    return named(name, root())


def is_file(name: str) -> bool:
    """True if a file of a spool may be called so."""
    return _NAME.fullmatch(name) is not None


def writer_of(name: str) -> str:
    """The writer of a file of a spool."""
    found = _NAME.fullmatch(name)
    assert found is not None, "is_file"
    return found["writer"]


def begins(name: str) -> bool:
    """True if a file of a spool is the first of its writer."""
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
    """The next lines of a spool, from the byte `at` of each file on; and whether there are more."""
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
    """The whole lines from here on. One that is too long is passed over; of one that has no end yet nothing is read."""
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
        return Line(name, writer, end, {}, f"the line of {name} that ends at byte {end:,} is no object with a kind")
    return Line(name, writer, end, said)


def unfinished(folder: Path, at: Mapping[str, int]) -> str:
    """The newest file whose last line has no end, as a program leaves it that dies while it writes; mostly empty."""
    return next((path.name for path in reversed(files(folder)) if path.stat().st_size > at.get(path.name, 0)), "")


def forget_read(folder: Path, at: Mapping[str, int]) -> dict[str, int]:
    """Delete the files that were read to their end, but the newest of each writer; the places in those that stay."""
    newest = {writer_of(path.name): path for path in files(folder)}
    for path in files(folder):
        if path != newest[writer_of(path.name)] and path.stat().st_size <= at.get(path.name, 0):
            path.unlink()
    return {path.name: at[path.name] for path in files(folder) if path.name in at}


def give_back(folder: Path, at: Mapping[str, int]) -> None:
    """Free the disk of the files that were read to their end, once nothing more is expected. They keep their size, by
    which a program elsewhere is told how much of them is here, and may be added to."""
    for path in files(folder):
        size = path.stat().st_size
        if size <= at.get(path.name, 0) and os.name == "posix" and path.stat().st_blocks:
            os.truncate(path, 0)
            os.truncate(path, size)


def forget(folder: Path) -> None:
    """Delete what the programs of a run have sent that was deleted for good. Another program may use its id again."""
    found = files(folder)
    if writers := {writer_of(path.name) for path in found} - gone(folder):
        with (folder / GONE).open("a", encoding="utf-8") as file:
            file.writelines(f"{writer}\n" for writer in sorted(writers))
    for path in found:
        path.unlink(missing_ok=True)


def asked(folder: Path) -> dict[str, Any]:
    """What the lab asks of a program; mostly nothing."""
    try:
        found = json_of((folder / ASKED).read_bytes())
    except (FileNotFoundError, NotJSON):
        return {}
    return found if isinstance(found, dict) else {}


def gone(folder: Path) -> set[str]:
    """The writers of a run that was deleted for good."""
    try:
        return {*(folder / GONE).read_text("utf-8").split()}
    except FileNotFoundError:
        return set()
