"""A store on PostgreSQL into whose cells somebody wrote: it is read, or refused in a sentence."""

import itertools
import os
import random
from contextlib import suppress

import sqlalchemy as sa

from labcore.errors import LabError
from labcore.runs.store.store import Store
from tests.runs.store.tampering import CELLS, READS, VALUES, filled
from tests.soak.report import Report


class Postgres:
    """Trials on databases of the server whose first one is at `url`."""

    def __init__(self, report: Report, url: sa.URL):
        self._report, self._url, self._numbers = report, url, itertools.count()
        self._administrator = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        self._run = filled(self._database("whole", ""))

    def trial(self, chance: random.Random) -> None:
        """Write into all cells of a column. Raises what a read raises, unless it is a sentence."""
        table, column = chance.choice(CELLS)
        self.one(table, column, chance.choice(VALUES))

    def one(self, table: str, column: str, value: object) -> None:
        """Have all rows of a table hold `value` in a column, where the column takes it, and read all there is."""
        name = f"tampered{os.getpid()}_{next(self._numbers)}"
        url = self._database(name, "TEMPLATE whole")
        taken = False
        with suppress(sa.exc.DBAPIError), sa.create_engine(url, poolclass=sa.NullPool).begin() as connection:
            kind = self._type(connection, table, column)
            connection.execute(sa.text(f"UPDATE {table} SET {column} = CAST(:value AS {kind})"),
                               {"value": str(value) if value is not None else None})
            taken = True
        if taken:
            self._read(url)
        self._report.count("Cells of a store on PostgreSQL", "tampered with" if taken else "refused by their type")
        with self._administrator.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")

    def _database(self, name: str, how: str) -> str:
        with self._administrator.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name} {how}")
        return self._url.set(database=name).render_as_string(hide_password=False)

    def _type(self, connection: sa.Connection, table: str, column: str) -> str:
        asked = sa.text("SELECT data_type FROM information_schema.columns WHERE table_name = :table "
                        "AND column_name = :column")
        return str(connection.scalar(asked, {"table": table, "column": column}))

    def _read(self, url: str) -> None:
        with suppress(LabError):
            store = Store(url)
            try:
                for read in READS:
                    with suppress(LabError):
                        read(store, self._run)
            finally:
                store.dispose()
