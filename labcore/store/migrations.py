"""Makes the tables in an empty database, and brings a store of an earlier version up to this one; never back."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import sqlalchemy as sa

from labcore.errors import LabError
from labcore.files.paths import imports, is_import
from labcore.store import changes, faults
from labcore.store.dialects import shown
from labcore.store.schema import VERSION, marks, meta, metadata, runs, sweeps

VERSIONS = tuple(map(str, range(1, int(VERSION) + 1)))


def prepare(connection: sa.Connection, url: str) -> None:
    """Have the tables of this version. Runs inside a write transaction.

    Raises:
        LabError: the store is of a version that this lab does not know, or has lost a table.
    """
    found = _version(connection, url)
    if found is None:
        metadata.create_all(connection, checkfirst=False)
        connection.execute(meta.insert(), [{"key": "version", "value": VERSION}, {"key": "number", "value": "0"}])
        _take_over_imports(connection)
    elif found != VERSION:
        _bring_up(connection, found)


def check(connection: sa.Connection, url: str) -> None:
    """That a store which is only to be read has the tables of this version.

    Raises:
        LabError: as `prepare`; or it is empty, or of an earlier version.
    """
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
    since = {marks.name: 4, sweeps.name: 7}
    of_version = {name for name in metadata.tables if found not in VERSIONS or int(found) >= since.get(name, 1)}
    if (missing := of_version - there) and found in (None, *VERSIONS):
        raise faults.damaged(url, f"it has no table {min(missing)}")
    if found not in VERSIONS:
        raise LabError(f"The store {shown(url)} was written by another version of the lab (its format is "
                       f"{found or 'unknown'}, this lab's is {VERSION}): use that version, or set RL_LAB_HOME to "
                       "another folder.")
    return found


def _bring_up(connection: sa.Connection, found: str) -> None:
    """Make the tables of version `found` those of this one."""
    if found == "1":
        _add_parents(connection)
    if found in ("1", "2"):
        _add_columns(connection, "summary")
    if found in ("1", "2", "3"):
        marks.create(connection)
    if found == "3":
        _take_over_marks(connection)
    if found in ("1", "2", "3"):
        _take_over_imports(connection)
    if found in ("1", "2", "3", "4"):
        _add_numbers(connection)
    if found != "6":
        _keep_number(connection)
    sweeps.create(connection)
    connection.execute(meta.update().where(meta.c.key == "version"), {"value": VERSION})


def _add_parents(connection: sa.Connection) -> None:
    """Since version 2 forks know their parent in a column of its own, and runs their sweep."""
    _add_columns(connection, "parent", "sweep")
    for run_id, spec in connection.execute(sa.select(runs.c.id, runs.c.spec)).all():
        if parent := json.loads(spec).get("parent"):
            connection.execute(runs.update().where(runs.c.id == run_id), {"parent": parent[0]})


def _add_numbers(connection: sa.Connection) -> None:
    """Since version 5 runs are numbered in the order in which they were made."""
    _add_columns(connection, "number")
    ids = connection.execute(sa.select(runs.c.id).order_by(runs.c.created, runs.c.id)).scalars().all()
    for number, run_id in enumerate(ids, start=1):
        connection.execute(runs.update().where(runs.c.id == run_id), {"number": number})


def _keep_number(connection: sa.Connection) -> None:
    """Since version 6 the highest number that a run was given is kept, whatever becomes of the run."""
    highest = connection.scalar(sa.select(sa.func.max(runs.c.number))) or 0
    connection.execute(meta.insert(), {"key": "number", "value": str(highest)})


def _take_over_marks(connection: sa.Connection) -> None:
    """Version 3 had the marks of runs in columns of their own, which stay there and are not read again."""
    old = [sa.column("star", sa.Boolean), sa.column("tags", sa.Text), sa.column("note", sa.Text),
           sa.column("deleted", sa.Double)]
    query = sa.select(sa.column("id"), *old).select_from(sa.table(runs.name)).where(
        sa.or_(*(column.is_not(None) for column in old)))
    for row in connection.execute(query).all():
        changes.mark(connection, row.id, star=bool(row.star), tags=row.tags or "[]", note=row.note or "",
                     deleted=row.deleted)


def _take_over_imports(connection: sa.Connection) -> None:
    """Before version 4 imported metrics had their marks in their about.json, and their trash was a folder."""
    for folder in _imports(imports()):
        _take_over_about(connection, folder)
    for folder in _imports(trash := imports() / ".trash"):
        if (target := imports() / folder.name).exists():  # imported again meanwhile: the same file
            continue
        deleted = folder.stat().st_mtime
        try:
            folder.rename(target)
        except OSError as error:
            raise LabError(f"{folder} cannot be moved out of the trash of an earlier version ({error.strerror}): "
                           "check the folder's permissions, or delete it.") from error
        _take_over_about(connection, target)
        changes.mark(connection, folder.name, deleted=deleted)
    with suppress(OSError):  # there is none, or something else is in it
        trash.rmdir()


def _take_over_about(connection: sa.Connection, folder: Path) -> None:
    with suppress(OSError, ValueError, AttributeError):  # a damaged one has no marks; the list says that it is damaged
        about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        star, tags, note = bool(about.get("star")), about.get("tags") or [], about.get("note") or ""
        if star or tags or note:
            changes.mark(connection, folder.name, star=star, tags=json.dumps(tags, ensure_ascii=False), note=note)


def _imports(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if is_import(path.name) and path.is_dir()] if folder.is_dir() else []


def _add_columns(connection: sa.Connection, *names: str) -> None:
    for column in map(runs.c.__getitem__, names):
        kind = column.type.compile(dialect=connection.dialect)
        connection.execute(sa.DDL(f"ALTER TABLE {runs.name} ADD COLUMN {column.name} {kind}"))
