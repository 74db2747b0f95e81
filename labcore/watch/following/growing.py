"""A growing file: the bytes added since the last look, and whether it is still the same file.

A file is the same as long as the bytes that were read are unchanged, even under another inode, as with rsync. If the
file is shorter or these bytes differ, it was replaced and is read from its start.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from labcore.runs.files.untrusted import opened

EDGE = 256  # bytes at the start and before the read position that are compared at every look
_BLOCK = 2**20


@dataclass(frozen=True)
class Stamp:
    """The attributes of a file at a look."""

    inode: int
    size: int
    changed: int  # ns


def stamp(path: Path) -> Stamp | None:
    """Return the file's stamp; None if there is no accessible file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return Stamp(found.st_ino, found.st_size, found.st_mtime_ns)


@dataclass
class Place:
    """The read position in a file: `offset` bytes with the checksum `sum`; `head` and `tail` are the checksums of the
    first and the last EDGE of these bytes. It is saved as JSON."""

    offset: int = 0
    sum: int = 0
    head: int = 0
    tail: int = 0
    inode: int = 0

    def went_on(self, file: BinaryIO) -> bool:
        """True if the bytes that were read are unchanged in the file."""
        found = os.fstat(file.fileno())
        if found.st_size < self.offset:
            return False
        edge = min(EDGE, self.offset)
        if _sum(file, 0, edge) != self.head or _sum(file, self.offset - edge, edge) != self.tail:
            return False
        return found.st_ino == self.inode or not self.inode or _sum(file, 0, self.offset) == self.sum

    def move(self, file: BinaryIO, data: bytes, used: int) -> None:
        """Advance by `used` bytes, the first of `data`."""
        self.sum = zlib.crc32(data[:used], self.sum)
        self.offset += used
        edge = min(EDGE, self.offset)
        self.head, self.tail = _sum(file, 0, edge), _sum(file, self.offset - edge, edge)
        self.inode = os.fstat(file.fileno()).st_ino


def _sum(file: BinaryIO, start: int, count: int) -> int:
    file.seek(start)
    total = 0
    while count and (block := file.read(min(count, _BLOCK))):
        total, count = zlib.crc32(block, total), count - len(block)
    return total


def open_at(path: Path, place: Place) -> tuple[BinaryIO, bool]:
    """Open the file. Also returns whether it is still the file that was read up to `place`. Raises LabError if it
    cannot be read."""
    with opened(path) as file:
        copy = os.fdopen(os.dup(file.fileno()), "rb")
    return copy, place.went_on(copy)
