"""The differences between databases: how one is opened, how its transactions begin, and what it supports.

On every database a read sees one snapshot, and writers take turns: what a write has read still holds when it commits,
and ids are committed in order. A write whose `turn` is `BESIDE` changes the rows of one run alone, whose row it locks
first; if the database supports it, such writes run at the same time, but never together with a write that is `ALONE`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from labcore.errors import LabError, first_line
from labcore.runs.files.paths import home, made, path_of, read_only
from labcore.runs.store.schema import steps

BUSY_SECONDS = 10  # how long a writer waits for another process's transaction
IDLE_SECONDS = 15  # a writer that is silent for so long (its machine sleeps, say) loses its turn: an append tries twice
LONGEST_PATH = 504  # bytes of a path that SQLite opens: its own files beside it have eight more, and 512 is its bound
TURN = "lab_turn"  # the execution option of a connection; a read has none
ALONE, BESIDE = "alone", "beside"


class Dialect:
    """The behaviour that all known databases share, and the one used for unknown databases."""

    def options(self) -> dict[str, Any]:
        """The options of its engine."""
        return {}

    def check_there(self, url: sa.URL) -> None:
        """Check that the database exists. Raises LabError if opening it would create it."""

    def connect(self, raw: Any, reads: bool) -> None:
        """A connection of the driver was opened; one that only `reads` writes nothing."""

    def begin(self, connection: sa.Connection) -> None:
        """A transaction begins."""

    def file(self, connection: sa.Connection) -> str | None:
        """The file of the database, if it is one."""
        return None

    def damage(self, connection: sa.Connection) -> str | None:
        """The damage of the database, after a check of all of it; None if the database checks itself."""
        return None

    def picked(self, keys: Sequence[str]) -> list[sa.ColumnElement[Any]] | None:
        """The metrics `keys` of a step, where the database picks them out of the JSON faster than Python."""
        return None


class SQLite(Dialect):
    """WAL mode; one process writes at a time."""

    def options(self) -> dict[str, Any]:
        return {"connect_args": {"timeout": BUSY_SECONDS}, "poolclass": sa.QueuePool}

    def check_there(self, url: sa.URL) -> None:
        if url.database and "uri" not in url.query and not Path(url.database).exists():
            raise LabError(f"There is no store {url.database} to read: set RL_LAB_HOME or RL_LAB_STORE to those of the "
                           "lab that is shared.")

    def connect(self, raw: Any, reads: bool) -> None:
        raw.isolation_level = None  # the driver must not open transactions of its own
        mode, = raw.execute("PRAGMA journal_mode" if reads else "PRAGMA journal_mode=WAL").fetchone()
        if mode == "memory":
            raise LabError("RL_LAB_STORE names a database in memory, where every run would be lost: give the URL of a "
                           "file such as sqlite:////path/lab.db, or leave it unset.")
        if reads:
            raw.execute("PRAGMA query_only=ON")
        raw.execute("PRAGMA synchronous=NORMAL")  # docs/robustness.md says why, and what a power cut may cost

    def begin(self, connection: sa.Connection) -> None:
        # A write that begins as a read can fail half-way when another process writes first; IMMEDIATE waits instead.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if _turn(connection) else "BEGIN")

    def file(self, connection: sa.Connection) -> str | None:
        path: str = connection.exec_driver_sql("SELECT file FROM pragma_database_list WHERE name = 'main'").scalar_one()
        return path

    def damage(self, connection: sa.Connection) -> str | None:
        found: str = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
        return None if found == "ok" else " ".join(found.split())

    def picked(self, keys: Sequence[str]) -> list[sa.ColumnElement[Any]]:
        return [sa.func.json_extract(steps.c.metrics, f'$."{key}"') for key in keys]


class PostgreSQL(Dialect):
    """An advisory lock, which a transaction has until its end, makes writers take turns."""

    LOCK = 7_246_113  # any number that no other program on the same database locks

    def options(self) -> dict[str, Any]:
        return {"connect_args": {"connect_timeout": BUSY_SECONDS}, "pool_pre_ping": True}

    def begin(self, connection: sa.Connection) -> None:
        if turn := _turn(connection):
            lock = "pg_advisory_xact_lock" if turn == ALONE else "pg_advisory_xact_lock_shared"
            connection.exec_driver_sql(
                f"SELECT set_config('lock_timeout', '{BUSY_SECONDS}s', true), "
                f"set_config('idle_in_transaction_session_timeout', '{IDLE_SECONDS}s', true), {lock}({self.LOCK})")
        else:
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")


_DIALECTS = {"sqlite": SQLite(), "postgresql": PostgreSQL()}
_OTHER = Dialect()


def store_url(reads: bool = False) -> str:
    """The URL of the database that keeps the lab's runs: `RL_LAB_STORE`, else SQLite in the lab's folder.

    The folder is created, because the files of runs lie there, unless the lab is shared for reading or the store is
    only to be read (`reads`). Raises LabError if the folder cannot be created, or its path is too long for SQLite.
    """
    folder = path_of(home())
    url = os.environ.get("RL_LAB_STORE") or sqlite_url(folder / "lab.db")
    if not os.environ.get("RL_LAB_STORE") and (length := len(os.fsencode(folder / "lab.db"))) > LONGEST_PATH:
        raise LabError(f"The path of the store, {folder / 'lab.db'}, has {length} bytes, and SQLite opens no file with "
                       f"more than {LONGEST_PATH}: set RL_LAB_HOME to a folder with a shorter path.")
    if not (reads or read_only()):
        made(folder)
    return url


def sqlite_url(file: Path) -> str:
    """The URL of the SQLite database in `file`, whose path may hold %, ? or #, which mean something else in a URL."""
    return sa.URL.create("sqlite", database=str(file)).render_as_string()


def of(connection: sa.Connection) -> Dialect:
    """The database that a connection leads to."""
    return _DIALECTS.get(connection.dialect.name, _OTHER)


def open_engine(url: str, reads: bool = False) -> sa.Engine:
    """An engine on `url`; one that only `reads` neither makes the database nor writes to it. Raises LabError if the URL
    is invalid, its driver is missing, the database cannot be opened, or it does not exist and is only to be read."""
    try:
        dialect = _DIALECTS.get(sa.make_url(url).get_backend_name(), _OTHER)
        engine = sa.create_engine(url, **dialect.options())
        if reads:
            dialect.check_there(engine.url)
    except ModuleNotFoundError as error:
        raise LabError(f"RL_LAB_STORE asks for a database whose driver {error.name} is not installed: run pip install "
                       "-r requirements-cluster.txt, or leave RL_LAB_STORE unset.") from error
    except (SQLAlchemyError, ImportError, ValueError) as error:
        raise LabError(f"RL_LAB_STORE is not a database that can be used here ({first_line(error)}): give an "
                       "SQLAlchemy URL such as sqlite:////path/lab.db, or leave it unset.") from error
    sa.event.listen(engine, "connect", lambda raw, _record: dialect.connect(raw, reads))
    sa.event.listen(engine, "begin", dialect.begin)
    return engine


def shown(url: str) -> str:
    """`url` fit for a message: the file of an SQLite store, else the URL without its password."""
    parsed = sa.make_url(url)
    return parsed.database if parsed.get_backend_name() == "sqlite" and parsed.database else str(parsed)


def _turn(connection: sa.Connection) -> str | None:
    turn: str | None = connection.get_execution_options().get(TURN)
    return turn
