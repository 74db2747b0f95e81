"""The base of the file readers, which convert new content of a file to calls.

The state of a reader is JSON: `memory` for its file, `shared` for all files that are read as one log. A restart
continues with both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from labcore.watch.following.calls import Call
from labcore.watch.following.growing import Place, open_at

PIECE = 2**20  # bytes that are read at once; more if a record is longer
PATIENCE = 3  # looks before a rewritten file is read, unless it stops changing earlier
_KIND = 30  # characters by which sentences are distinguished
Memory = dict[str, Any]


class Damaged(Exception):
    """A file cannot be read further. The message is a sentence without the file's name: "is damaged at …"."""


class Reader(ABC):
    """Reads one file."""

    def __init__(self, path: Path, memory: Memory, shared: Memory, say: Callable[[str], None]):
        self.path, self.memory, self.shared = path, memory, shared
        self._say, self._said = say, set[str]()

    def say(self, sentence: str) -> None:
        """Tell the user a sentence about the file, without its name; only the first of similar sentences."""
        if (kind := sentence[:_KIND]) not in self._said:
            self._said.add(kind)
            self._say(sentence)

    @abstractmethod
    def look(self, settled: bool) -> Iterator[Call]:
        """Yield the new data of the file. `settled`: it has not changed since the last look. A call counts as read when
        the next one is requested. Raises Damaged, or LabError if the file cannot be read."""


class Growing(Reader):
    """Reads a file to which its writer appends, in pieces."""

    most = 64 * 2**20  # bytes of an incomplete record

    @abstractmethod
    def take(self, data: bytes, at: int) -> tuple[int, list[Call]]:
        """Return the number of bytes used from `at` on, and the data in them. Raises Damaged."""

    def again(self, shorter: bool) -> None:
        """Reset the state, because the file was rewritten and is read from its start."""
        self.memory.clear()

    def look(self, settled: bool) -> Iterator[Call]:
        """Yield the appended data. A rewritten file is read from its start."""
        place = Place(**self.memory.get("place", {}))
        file, same = open_at(self.path, place)
        with file:
            if not same:
                file.seek(0, 2)
                shorter = file.tell() < place.offset
                self.memory["waits"] = self.memory.get("waits", 0) + 1
                if not settled and self.memory["waits"] < PATIENCE:
                    return
                place = Place()
                self.again(shorter)
            piece = PIECE
            while True:
                file.seek(place.offset)
                data = file.read(piece)
                used, calls = self.take(data, place.offset)
                yield from calls
                if used:
                    place.move(file, data, used)
                    self.memory["place"] = asdict(place)
                    piece = PIECE
                elif len(data) < piece:
                    return
                elif piece >= self.most:
                    raise Damaged(f"has a record of more than {self.most // 2**20} MB at byte {place.offset:,}: the "
                                  "rest is not read")
                else:
                    piece = min(4 * piece, self.most)
