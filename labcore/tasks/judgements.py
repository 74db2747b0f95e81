"""What judges have replied, in RL_LAB_HOME/judgements.db: by the hash of all that they were asked."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Self

from labcore.errors import LabError
from labcore.files.paths import JUDGEMENTS, home, made

LONGEST = 4000  # characters of a reply that are kept: a grade has few
_MOST = 500  # keys of one question: SQLite bounds the number of its parameters
_WAIT = 30.0  # seconds for another process to finish writing


class Judgements:
    """The file, opened for a batch of answers. Each reply is on the disk before the next is asked for.

    Raises:
        LabError: it cannot be read or written.
    """

    def __enter__(self) -> Self:
        self._path = made(home()) / JUDGEMENTS
        try:
            self._db = sqlite3.connect(self._path, timeout=_WAIT, isolation_level=None)
        except sqlite3.Error as error:
            raise self._unusable(error) from error
        self._do("CREATE TABLE IF NOT EXISTS judgements (key TEXT PRIMARY KEY, reply TEXT NOT NULL)")
        return self

    def __exit__(self, *error: object) -> None:
        self._db.close()

    def read(self, keys: Iterable[str]) -> dict[str, str]:
        """The replies that are known, by their keys."""
        asked, found = list(dict.fromkeys(keys)), dict[str, str]()
        for start in range(0, len(asked), _MOST):
            some = asked[start:start + _MOST]
            found |= dict(self._do(f"SELECT key, reply FROM judgements WHERE key IN ({','.join('?' * len(some))})",
                                   *some))
        return found

    def write(self, key: str, reply: str) -> None:
        """Keep a reply; what is known already stays."""
        self._do("INSERT OR IGNORE INTO judgements VALUES (?, ?)", key, reply[-LONGEST:])

    def _do(self, statement: str, *values: str) -> list[tuple[str, str]]:
        try:
            return self._db.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def _unusable(self, error: sqlite3.Error) -> LabError:
        return LabError(f"The judge's replies in {self._path.parent.name}/{self._path.name} cannot be used ({error}): "
                        "free some disk space, or move the file away to have every answer judged again.")
