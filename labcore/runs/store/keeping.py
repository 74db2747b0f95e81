"""Stars, tags, projects, notes, the trash, and the summaries that lists keep of runs. Part of the store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache

import sqlalchemy as sa

from labcore.errors import LabError, quoted
from labcore.runs.files import storage
from labcore.runs.files.paths import imports, is_id, is_import, is_run_id, named, run_folder
from labcore.runs.files.removal import remove
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.store import changes
from labcore.runs.store.database import Database, Row
from labcore.runs.store.rows import GOING, PENDING, Garbled, Marks, RunRow
from labcore.runs.store.schema import controls, marks, runs

_MARKS = tuple(Marks.__dataclass_fields__)
_OPEN = sa.select(controls.c.command).where(
    controls.c.run_id == runs.c.id, controls.c.state == "asked", controls.c.command.in_([*PENDING])).order_by(
    controls.c.command.desc()).limit(1).correlate(runs).scalar_subquery()  # "stop" first: then a pause means nothing
_ASKED = sa.case((runs.c.state.in_(GOING), _OPEN)).label("asked")
RUNS = sa.select(*(_ASKED if name == "asked" else (marks if name in _MARKS else runs).c[name]
                   for name in RunRow.__dataclass_fields__)).select_from(
    runs.outerjoin(marks, marks.c.id == runs.c.id))  # every run as a `run_row`, those in the trash as well


def run_row(row: Row) -> RunRow:
    """The run in a row of `RUNS`. Raises Garbled where its id or its spec is none, or it has no number."""
    if not is_id(row.id):
        raise Garbled(f"it has a run with the id {quoted(row.id)}, which no run can have")
    if row.number is None:
        raise Garbled(f"the run {row.id} has no number")
    try:
        spec = _spec(row.spec)
    except LabError as error:
        raise Garbled(f"the spec of the run {row.id} cannot be read") from error
    return RunRow(**{**row._mapping, "spec": replace(spec, knobs=dict(spec.knobs)),
                     "stops_early": bool(row.stops_early), **vars(_marks(row))})


@lru_cache(maxsize=4096)  # lists of thousands are read again and again, and specs never change
def _spec(text: str) -> RunSpec:
    return RunSpec.from_json(text)


def _remove(name: str) -> None:
    """Delete the files of a run or of imported metrics, also those that are published. Of a name that is no id, as only
    a store that somebody changed has one, there are none."""
    if is_import(name):
        remove(named(name, imports()))
    elif is_run_id(name):
        remove(run_folder(name))
        storage.deleted(run_folder(name))


def _marks(row: Row) -> Marks:
    tags = json.loads(row.tags or "[]")
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise Garbled(f"the tags of {row.id} cannot be read")
    return Marks(bool(row.star), tuple(tags), row.note or "", row.deleted, row.project or "")


class Keeping(Database):
    """See the module. The marks are of runs and of imported metrics, of which the store knows nothing else."""

    def mark(self, name: str, *, star: bool | None = None, tags: Sequence[str] | None = None,
             note: str | None = None, project: str | None = None) -> None:
        """Set a star, tags, a note or a project; None leaves it. Raises NoSuchRun where there is no such run."""
        words = None if tags is None else json.dumps(list(tags), ensure_ascii=False)
        all_of = {"star": star, "tags": words, "note": note, "project": project}
        given = {key: value for key, value in all_of.items() if value is not None}
        with self._writing() as connection:
            changes.markable(connection, name)
            if given:
                changes.mark(connection, name, **given)

    def marks(self) -> dict[str, Marks]:
        """The marks of all runs and imported metrics that have any."""
        with self._reading() as connection:
            return {row.id: _marks(row) for row in connection.execute(sa.select(marks))}

    def projects(self) -> dict[str, int]:
        """The projects of all runs and imported metrics that are not in the trash, with how many each has."""
        query = sa.select(marks.c.project, sa.func.count().label("many")).where(
            marks.c.project != "", marks.c.deleted.is_(None)).group_by(marks.c.project).order_by(marks.c.project)
        with self._reading() as connection:
            return {row.project: row.many for row in connection.execute(query)}

    def marks_of(self, name: str) -> Marks:
        """The marks of a run or of imported metrics."""
        with self._reading() as connection:
            row = connection.execute(sa.select(marks).where(marks.c.id == name)).first()
            return _marks(row) if row else Marks()

    def trash(self, names: Iterable[str]) -> None:
        """Put ended or queued runs and imported metrics into the trash: all or none. A queued run is stopped. Raises
        LabError if a worker has one of the runs, or one does not exist."""
        with self._writing() as connection:
            for name in names:
                changes.trash(connection, name)

    def restore(self, names: Iterable[str]) -> None:
        """Take runs and imported metrics out of the trash as they were. Raises NoSuchRun where a run is gone."""
        with self._writing() as connection:
            for name in names:
                changes.markable(connection, name, in_trash=True)
                changes.mark(connection, name, deleted=None)

    def trashed(self) -> list[RunRow]:
        """The runs in the trash, the last deleted first."""
        query = RUNS.where(marks.c.deleted.is_not(None)).order_by(marks.c.deleted.desc(), runs.c.id)
        with self._reading() as connection:
            return [run_row(row) for row in connection.execute(query)]

    def delete(self, name: str) -> None:
        """Delete an ended or queued run, or imported metrics, for good: rows and folder. Raises LabError if a worker
        has the run, or it does not exist."""
        with self._writing() as connection:
            changes.forget(connection, name)
        _remove(name)

    def purge(self, before: float, names: Iterable[str] | None = None) -> list[str]:
        """Delete for good the runs that have been in the trash since `before`, a unix time, or longer: among `names`,
        or all.

        Returns the deleted names. A run that was restored, or deleted again, after the trash was listed stays.
        """
        with self._reading() as connection:
            if not changes.trashed_since(connection, before):
                return []
        with self._writing() as connection:
            gone = changes.trashed_since(connection, before)
            gone = gone if names is None else sorted({*gone} & {*names})
            for name in gone:
                changes.forget(connection, name)
        for name in gone:
            _remove(name)
        return gone

    def files(self) -> list[str]:
        """The files and models that any run names, those in the trash as well."""
        with self._reading() as connection:
            return changes.files(connection)

    @contextmanager
    def files_held(self) -> Iterator[list[str]]:
        """The files that runs name; no run is added until the block ends. Keep it short, because every writer waits."""
        with self._writing() as connection:
            yield changes.files(connection)

    def summaries(self, names: Sequence[str] | None = None) -> dict[str, str]:
        """The summaries that `keep_summaries` stored, of every run or of the runs `names`, including runs in the
        trash."""
        query = sa.select(runs.c.id, runs.c.summary).where(runs.c.summary.is_not(None))
        with self._reading() as connection:
            found = connection.execute(query if names is None else query.where(runs.c.id.in_(names)))
            return {row.id: row.summary for row in found}

    def keep_summaries(self, summaries: Mapping[str, str | None]) -> None:
        """Keep for each run what a list shows of it, so that nobody has to read all its steps again."""
        with self._writing() as connection:
            for run_id, text in summaries.items():
                connection.execute(runs.update().where(runs.c.id == run_id), {"summary": text})

    def keep_summary(self, row: RunRow, text: str) -> None:
        """Store the summary of the run `row`, unless the run has been resumed since."""
        same = runs.c.ended.is_(None) if row.ended is None else runs.c.ended == row.ended
        with self._writing() as connection:
            connection.execute(runs.update().where(runs.c.id == row.id, same), {"summary": text})
