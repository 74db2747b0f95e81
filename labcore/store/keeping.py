"""What its owner does with a run: stars, tags, notes, the trash, and what lists remember of it. Part of the store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import sqlalchemy as sa

from labcore.files.paths import remove_run_folder
from labcore.spec.run_spec import RunSpec
from labcore.store import changes as inside
from labcore.store.database import Database
from labcore.store.rows import RunRow
from labcore.store.schema import runs

RUN_COLUMNS = [runs.c[name] for name in RunRow.__dataclass_fields__]


def run_row(row: sa.Row) -> RunRow:
    """The run in a row of `RUN_COLUMNS`."""
    return RunRow(**{**row._mapping, "spec": RunSpec.from_json(row.spec), "star": bool(row.star),
                     "tags": tuple(json.loads(row.tags or "[]")), "note": row.note or ""})


class Keeping(Database):
    """See the module."""

    def mark(self, run_id: str, *, star: bool | None = None, tags: Sequence[str] | None = None,
             note: str | None = None) -> None:
        """Set a run's star, its tags or its note; what is None stays as it is. Raises NoSuchRun where there is none."""
        words = None if tags is None else json.dumps(list(tags), ensure_ascii=False)
        given = {key: value for key, value in (("star", star), ("tags", words), ("note", note)) if value is not None}
        with self._writing() as connection:
            inside.known(connection, run_id)
            if given:
                connection.execute(runs.update().where(runs.c.id == run_id), given)

    def trash(self, run_ids: Iterable[str]) -> None:
        """Put ended or queued runs into the trash: all of them or none. A queued one is stopped.

        Raises:
            LabError: one is going, or is not there.
        """
        with self._writing() as connection:
            for run_id in run_ids:
                inside.trash(connection, run_id)

    def restore(self, run_ids: Iterable[str]) -> None:
        """Take runs out of the trash as they were. Raises NoSuchRun where one is gone for good."""
        with self._writing() as connection:
            for run_id in run_ids:
                inside.known(connection, run_id, in_trash=True)
                connection.execute(runs.update().where(runs.c.id == run_id), {"deleted": None})

    def trashed(self) -> list[RunRow]:
        """The runs in the trash, the last deleted first."""
        query = sa.select(*RUN_COLUMNS).where(runs.c.deleted.is_not(None)).order_by(runs.c.deleted.desc(), runs.c.id)
        with self._reading() as connection:
            return [run_row(row) for row in connection.execute(query)]

    def delete(self, run_id: str) -> None:
        """Forget an ended or queued run for good: its rows and its folder, where that can be a run's (see `is_run_id`).

        Raises:
            LabError: it is going, or is not there.
        """
        with self._writing() as connection:
            inside.forget(connection, run_id)
        remove_run_folder(run_id)

    def purge(self, run_ids: Iterable[str], before: float) -> list[str]:
        """Forget for good those runs that lie in the trash since `before`, a unix time, or longer; return their ids."""
        with self._writing() as connection:  # where they lie is asked here: somebody may have restored one meanwhile
            gone = [run_id for run_id in run_ids if inside.in_trash_since(connection, run_id, before)]
            for run_id in gone:
                inside.forget(connection, run_id)
        for run_id in gone:
            remove_run_folder(run_id)
        return gone

    def files(self) -> list[str]:
        """The files and models that any run names, those in the trash as well."""
        with self._reading() as connection:
            return inside.files(connection)

    @contextmanager
    def files_held(self) -> Iterator[list[str]]:
        """The same, where no run is added until the end of the block."""
        with self._writing() as connection:
            yield inside.files(connection)

    def digests(self) -> dict[str, str]:
        """What `keep_digests` was given for each run, those in the trash as well."""
        with self._reading() as connection:
            return {row.id: row.digest for row in connection.execute(
                sa.select(runs.c.id, runs.c.digest).where(runs.c.digest.is_not(None)))}

    def keep_digests(self, digests: Mapping[str, str | None]) -> None:
        """Keep for each run what a list shows of it, so that nobody has to read all its steps again."""
        with self._writing() as connection:
            for run_id, text in digests.items():
                connection.execute(runs.update().where(runs.c.id == run_id), {"digest": text})
