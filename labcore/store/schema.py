"""The store's tables, and how its database is opened.

Five tables: runs, steps (one row per step, never changed), events (append-only), controls (what was asked of a run and
what became of it) and marks (stars, tags, notes and the trash, of runs and of imported metrics). `migrations` brings a
store of an earlier version up to this one.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from labcore.errors import LabError, first_line

VERSION = "6"
BUSY_SECONDS = 10  # how long a writer waits for another process's transaction

metadata = sa.MetaData()

# version, and since version 6 number: the highest that a run was given, which no other run gets, whatever is deleted.
meta = sa.Table("lab_meta", metadata, sa.Column("key", sa.String(40), primary_key=True),
                sa.Column("value", sa.String(200), nullable=False))

runs = sa.Table(
    "lab_runs", metadata,
    sa.Column("id", sa.String(100), primary_key=True),
    sa.Column("spec", sa.Text, nullable=False),
    sa.Column("state", sa.String(20), nullable=False, index=True),
    sa.Column("message", sa.Text, nullable=False, default=""),
    sa.Column("created", sa.Double, nullable=False, index=True),
    sa.Column("started", sa.Double), sa.Column("ended", sa.Double),
    sa.Column("pid", sa.Integer), sa.Column("host", sa.String(200)),
    sa.Column("process_started", sa.Double),  # tells the process from a later one with the same pid
    sa.Column("heartbeat", sa.Double),
    sa.Column("step", sa.Integer, nullable=False, default=0),
    sa.Column("seconds", sa.Double, nullable=False, default=0.0),
    sa.Column("base", sa.String(100)),
    sa.Column("parent", sa.String(100)),  # since version 2: the run that it is a fork of
    sa.Column("sweep", sa.String(100)),  # since version 2: the sweep that it is part of
    sa.Column("digest", sa.Text, key="summary"),  # since version 3: what a list shows of it
    sa.Column("number", sa.Integer),  # since version 5: counts the lab's runs as they are made
)

marks = sa.Table(  # since version 4; a run or an import without a row has no marks
    "lab_marks", metadata,
    sa.Column("id", sa.String(100), primary_key=True),
    sa.Column("star", sa.Boolean, nullable=False, default=False),
    sa.Column("tags", sa.Text, nullable=False, default="[]"), sa.Column("note", sa.Text, nullable=False, default=""),
    sa.Column("deleted", sa.Double),  # when it was put into the trash
)

steps = sa.Table(
    "lab_steps", metadata,
    sa.Column("run_id", sa.String(100), primary_key=True),
    sa.Column("step", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("tokens", sa.BigInteger, nullable=False), sa.Column("env_steps", sa.BigInteger, nullable=False),
    sa.Column("seconds", sa.Double, nullable=False), sa.Column("metrics", sa.Text, nullable=False),
    sqlite_with_rowid=False,  # rows lie in (run, step) order: "steps after n" reads neighbours
)

events = sa.Table(
    "lab_events", metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("run_id", sa.String(100), nullable=False), sa.Column("step", sa.Integer, nullable=False),
    sa.Column("kind", sa.String(40), nullable=False), sa.Column("payload", sa.Text, nullable=False),
    sa.Column("time", sa.Double, nullable=False), sa.Index("lab_events_of_run", "run_id", "id"),
)

controls = sa.Table(
    "lab_controls", metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("run_id", sa.String(100), nullable=False), sa.Column("command", sa.String(20), nullable=False),
    sa.Column("payload", sa.Text, nullable=False), sa.Column("state", sa.String(20), nullable=False),
    sa.Column("asked", sa.Double, nullable=False), sa.Column("settled", sa.Double),
    sa.Column("step", sa.Integer), sa.Column("refused", sa.Text),
    sa.Index("lab_controls_open", "run_id", "state", "id"),
)


_OPTIONS: dict[str, dict[str, Any]] = {
    "sqlite": {"connect_args": {"timeout": BUSY_SECONDS}, "poolclass": sa.QueuePool},
    "postgresql": {"connect_args": {"connect_timeout": BUSY_SECONDS}, "pool_pre_ping": True},
}
_WRITER_LOCK = 7_246_113  # any number that no other program on the same database locks


def open_engine(url: str) -> sa.Engine:
    """An engine on `url`: a read sees one snapshot, and one `lab_write` transaction at a time reads and writes.

    Raises:
        LabError: the URL is none, its driver is missing, or the database cannot be opened.
    """
    try:
        backend = sa.make_url(url).get_backend_name()
        engine = sa.create_engine(url, **_OPTIONS.get(backend, {}))
    except ModuleNotFoundError as error:
        raise LabError(f"RL_LAB_STORE asks for a database whose driver {error.name} is not installed: run pip install "
                       "-r requirements-cluster.txt, or leave RL_LAB_STORE unset.") from error
    except (SQLAlchemyError, ImportError, ValueError) as error:
        raise LabError(f"RL_LAB_STORE is not a database that can be used here ({first_line(error)}): give an "
                       "SQLAlchemy URL such as sqlite:////path/lab.db, or leave it unset.") from error
    if backend == "sqlite":
        sa.event.listen(engine, "connect", _on_connect)
        sa.event.listen(engine, "begin", _on_begin)
    if backend == "postgresql":
        sa.event.listen(engine, "begin", _on_begin_postgresql)
    return engine


def _on_connect(connection, _record) -> None:
    connection.isolation_level = None  # the driver must not open transactions of its own
    mode, = connection.execute("PRAGMA journal_mode=WAL").fetchone()
    if mode == "memory":
        raise LabError("RL_LAB_STORE names a database in memory, where every run would be lost: give the URL of a file "
                       "such as sqlite:////path/lab.db, or leave it unset.")
    connection.execute("PRAGMA synchronous=NORMAL")  # docs/robustness.md says why, and what a power cut may cost


def _on_begin(connection: sa.Connection) -> None:
    # A write that begins as a read can fail half-way when another process writes first; IMMEDIATE waits instead.
    write = connection.get_execution_options().get("lab_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _on_begin_postgresql(connection: sa.Connection) -> None:
    # As on SQLite: writers take turns, so what a write has read still holds, and ids are committed in order.
    if connection.get_execution_options().get("lab_write", False):
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{BUSY_SECONDS}s'")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITER_LOCK})")
    else:
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")


def shown(url: str) -> str:
    """`url` fit for a message: the file of an SQLite store, else the URL without its password."""
    parsed = sa.make_url(url)
    return parsed.database if parsed.get_backend_name() == "sqlite" and parsed.database else str(parsed)


def file_of(connection: sa.Connection) -> str | None:
    """The file of an SQLite store."""
    if connection.dialect.name != "sqlite":
        return None
    path: str = connection.exec_driver_sql("SELECT file FROM pragma_database_list WHERE name = 'main'").scalar_one()
    return path
