"""The store's database and its transactions. Threads may share it; after a fork a child has its own ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from labcore.files.paths import home, made
from labcore.store import migrations, schema


class Database:
    """Opened at `url`, else at `RL_LAB_STORE`, else as SQLite in the lab's folder; brought up to this version.

    Raises LabError where the database cannot be used; the message says what to do.
    """

    def __init__(self, url: str | None = None):
        self.url = url or os.environ.get("RL_LAB_STORE") or f"sqlite:///{made(home()) / 'lab.db'}"
        self._open()
        with self._writing() as connection:
            migrations.prepare(connection, self.url)

    def _open(self) -> None:
        self._engine = schema.open_engine(self.url)
        self._writer = self._engine.execution_options(lab_write=True)
        self._process = os.getpid()

    def dispose(self) -> None:
        """Close all connections; the next use opens new ones. To be called before a fork."""
        self._engine.dispose()

    @contextmanager
    def _transaction(self, write: bool) -> Iterator[sa.Connection]:
        if self._process != os.getpid():  # a forked child must not touch its parent's connections
            self._engine.dispose(close=False)
            self._open()
        try:
            with (self._writer if write else self._engine).begin() as connection:
                yield connection
        except DBAPIError as error:
            raise schema.in_words(error, self.url) from error

    def _writing(self):
        return self._transaction(write=True)

    def _reading(self):
        return self._transaction(write=False)
