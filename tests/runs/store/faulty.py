"""A store that fails as SQLite does, from a chosen use of it on."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from labcore.runs.store import dialects

# What SQLite says, and what the user reads.
FAULTS = {
    "disk full": ("database or disk is full", "is full: free some space"),
    "almost full": ("disk I/O error", "could not be read or written"),
    "locked": ("database is locked", "was busy for more than"),
    "read-only": ("attempt to write a readonly database", "cannot be opened for writing"),
    "unplugged": ("unable to open database file", "cannot be opened for writing"),
}
WRITING_ONLY = ("disk full", "read-only")  # what is there can still be read


@contextmanager
def failing(says: str, after: int, writing_only: bool = False) -> Iterator[list[str]]:
    """Have the store fail from its `after`-th use on: when a transaction begins, or when it is committed.

    Yields a list of the uses, one for each time.
    """
    uses: list[str] = []

    def use(connection: sa.Connection) -> None:
        if writing_only and not connection.get_execution_options().get(dialects.TURN):
            return
        uses.append(says)
        if len(uses) > after:
            raise sa.exc.OperationalError("", {}, sqlite3.OperationalError(says))

    for event in ("begin", "commit"):
        sa.event.listen(sa.Engine, event, use)
    try:
        yield uses
    finally:
        for event in ("begin", "commit"):
            sa.event.remove(sa.Engine, event, use)
