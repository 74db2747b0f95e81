"""Makes the tables in an empty database, and brings a store of an earlier version up to this one; never back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from labcore.errors import LabError
from labcore.runs.store import faults, old_imports
from labcore.runs.store.dialects import shown
from labcore.runs.store.schema import VERSION, marks, meta, metadata, sweeps, watched

if TYPE_CHECKING:
    from alembic.script import Script

REVISIONS = Path(__file__).with_name("revisions")
VERSIONS = tuple(map(str, range(1, int(VERSION) + 1)))


def prepare(connection: sa.Connection, url: str) -> None:
    """Create the tables of this version, or migrate older ones to it. Runs inside a write transaction. Raises LabError
    if the store has a version that this lab does not know, or has lost a table."""
    found = _version(connection, url)
    if found is None:
        metadata.create_all(connection, checkfirst=False)
        connection.execute(meta.insert(), [{"key": "version", "value": VERSION}, {"key": "number", "value": "0"}])
        if rows := old_imports.taken_over():
            connection.execute(marks.insert(), rows)
    elif found != VERSION:
        _bring_up(connection, found)


def check(connection: sa.Connection, url: str) -> None:
    """Check that a store which is only to be read has the tables of this version. Raises LabError as `prepare`, or if
    the store is empty or has an earlier version."""
    found = _version(connection, url)
    if found != VERSION:
        what = "holds no lab yet" if found is None else "is of an earlier version of the lab"
        raise LabError(f"The store {shown(url)} {what}: open it once in a lab that may write (without "
                       "RL_LAB_READ_ONLY), then share it for reading.")


def _version(connection: sa.Connection, url: str) -> str | None:
    """The version of the store, None where it is empty. Raises LabError as `prepare`."""
    there = metadata.tables.keys() & set(sa.inspect(connection).get_table_names())
    if not there:
        return None
    found: str | None = (connection.execute(sa.select(meta.c.value).where(meta.c.key == "version")).scalar()
                         if meta.name in there else None)
    since = {marks.name: 4, sweeps.name: 7, watched.name: 11}
    of_version = {name for name in metadata.tables if found not in VERSIONS or int(found) >= since.get(name, 1)}
    if (missing := of_version - there) and found in (None, *VERSIONS):
        raise faults.damaged(url, f"it has no table {min(missing)}")
    if found not in VERSIONS:
        raise LabError(f"The store {shown(url)} was written by another version of the lab (its format is "
                       f"{found or 'unknown'}, this lab's is {VERSION}): use that version, or set RL_LAB_HOME to "
                       "another folder.")
    return found


def _bring_up(connection: sa.Connection, found: str) -> None:
    """Make the tables of version `found` those of this one. `lab_meta` says the version, which labs of before read as
    well; Alembic keeps no table of its own."""
    from alembic.operations import Operations  # here, as few stores need it
    from alembic.runtime.migration import MigrationContext

    with Operations.context(MigrationContext.configure(connection)):
        for script in _scripts(found):
            _upgrade(script)
    connection.execute(meta.update().where(meta.c.key == "version"), {"value": VERSION})


def _scripts(found: str) -> list[Script]:
    """The revisions that a store of version `found` lacks, in their order."""
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(REVISIONS, version_locations=[REVISIONS])
    return [*scripts.iterate_revisions("head", found)][::-1]


def _upgrade(script: Script) -> None:
    script.module.upgrade()
