"""The store's database and its transactions. Threads may share it; after a fork a child has its own ones."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from labcore.errors import LabError
from labcore.runs.files.paths import check_writable, read_only
from labcore.runs.store import dialects, faults, migrations
from labcore.runs.store.rows import Garbled

Row = sa.Row[*tuple[Any, ...]]


class Database:
    """Opened at `url`, else at `RL_LAB_STORE`, else as SQLite in the lab's folder; migrated to this version. A lab that
    is shared for reading opens it without a migration and refuses every write; with `reads` any lab does.

    Raises LabError where the database cannot be used; the message says what to do.
    """

    def __init__(self, url: str | None = None, *, reads: bool = False):
        self._reads = reads or read_only()
        self.url = url or dialects.store_url(self._reads)
        self._file: tuple[str, int | None] | None = None
        self._open()
        with self._reading() if self._reads else self._writing() as connection:
            (migrations.check if self._reads else migrations.prepare)(connection, self.url)
            path = dialects.of(connection).file(connection)
        self._file = (path, _inode(path)) if path else None

    def _open(self) -> None:
        self._engine = dialects.open_engine(self.url, self._reads)
        self._writers = {turn: self._engine.execution_options(**{dialects.TURN: turn})
                         for turn in (dialects.ALONE, dialects.BESIDE)}
        self._process = os.getpid()

    def dispose(self) -> None:
        """Close all connections; the next use opens new ones. To be called before a fork."""
        self._engine.dispose()

    @contextmanager
    def _transaction(self, turn: str | None = None) -> Iterator[sa.Connection]:
        if self._process != os.getpid():  # a forked child must not touch its parent's connections
            self._engine.dispose(close=False)
            self._open()
        if self._file and _inode(self._file[0]) != self._file[1]:  # SQLite would go on writing into a deleted file
            self._engine.dispose()
            raise LabError(f"The store {self._file[0]} was moved, deleted or replaced while the lab had it open: put "
                           "it back, or start the lab again.")
        try:
            with (self._writers[turn] if turn else self._engine).begin() as connection:
                yield connection
        except DBAPIError as error:
            raise faults.in_words(error, self.url) from error
        except Garbled as error:
            raise faults.damaged(self.url, str(error)) from error
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:  # of a row that is read
            raise faults.damaged(self.url, "a row in it cannot be read") from error

    def _writing(self) -> AbstractContextManager[sa.Connection]:
        check_writable()
        return self._transaction(dialects.ALONE)

    def _writing_rows(self) -> AbstractContextManager[sa.Connection]:
        """For the rows of one run, whose own row is locked before anything else is written."""
        check_writable()
        return self._transaction(dialects.BESIDE)

    def _reading(self) -> AbstractContextManager[sa.Connection]:
        return self._transaction()


def _inode(path: str) -> int | None:
    """The inode of the file at `path`; None where there is none."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return None
