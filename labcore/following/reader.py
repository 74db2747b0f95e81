"""The base of the readers of files: what is new in a file becomes calls.

All that a reader knows is JSON: `memory` of its file, `shared` of all files that are read as one with it. A restart
goes on with both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from labcore.following.calls import Call
from labcore.following.growing import Place, open_at

PIECE = 2**20  # bytes that are read at once, more where nothing of them can be used alone
PATIENCE = 3  # looks at a file that was written again before it is read, unless it stands still: its writer is at it
_KIND = 30  # letters by which sentences are told apart
Memory = dict[str, Any]


class Damaged(Exception):
    """A file cannot be read further. The message is a sentence about it without its name: "is damaged at …"."""


class Reader(ABC):
    """Reads one file."""

    def __init__(self, path: Path, memory: Memory, shared: Memory, say: Callable[[str], None]):
        self.path, self.memory, self.shared = path, memory, shared
        self._say, self._said = say, set[str]()

    def say(self, sentence: str) -> None:
        """Tell the user a sentence about the file, without its name: of those that begin alike the first."""
        if (kind := sentence[:_KIND]) not in self._said:
            self._said.add(kind)
            self._say(sentence)

    @abstractmethod
    def look(self, settled: bool) -> Iterator[Call]:
        """What is new in the file. `settled`: it has not changed since the last look. A call counts as read once the
        next one is asked for. Raises Damaged, and LabError where the file cannot be read."""


class Growing(Reader):
    """Reads a file to which its writer appends, in pieces."""

    most = 64 * 2**20  # bytes of a piece of which nothing can be used before it is whole

    @abstractmethod
    def take(self, data: bytes, at: int) -> tuple[int, list[Call]]:
        """How many of the bytes from `at` on are used, and what is in them. Raises Damaged."""

    def again(self, shorter: bool) -> None:
        """The file was written again, and is read from its start."""
        self.memory.clear()

    def look(self, settled: bool) -> Iterator[Call]:
        """What was appended. A file that was written again is read from its start."""
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
                    raise Damaged(f"has more than {self.most // 2**20} MB at byte {place.offset:,} that belong "
                                  "together: what follows is not read")
                else:
                    piece = min(4 * piece, self.most)
