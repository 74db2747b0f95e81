"""The databases that keep a store: every test that asks for `each_database` runs on SQLite and on PostgreSQL.

The PostgreSQL is a server of the tests' own; where Debian's `postgresql` or the driver is not installed, these tests
are skipped.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from labcore.runs.store.store import Store
from tests.runs.store import postgres


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=postgres.THERE)])
def each_database(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, lab_home: Path) -> Iterator[str]:
    """What keeps the stores that the test opens; its name."""
    if request.param == "sqlite":
        yield request.param
        return
    made, administrator = request.getfixturevalue("databases")
    url = made()
    monkeypatch.setenv("RL_LAB_STORE", url.render_as_string(hide_password=False))
    yield request.param
    with administrator.connect() as connection:
        connection.exec_driver_sql(f"DROP DATABASE {url.database} WITH (FORCE)")


@pytest.fixture(scope="session")
def databases(tmp_path_factory) -> Iterator[tuple[Callable[[], sa.URL], sa.Engine]]:
    """What makes one more empty store on the server, and who may delete it."""
    with postgres.server() as server:
        administrator = sa.create_engine(server, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        with administrator.connect() as connection:
            connection.exec_driver_sql("CREATE DATABASE pattern")
        Store(server.set(database="pattern").render_as_string()).dispose()
        numbers = itertools.count()

        def made() -> sa.URL:
            name = f"lab{next(numbers)}"
            with administrator.connect() as connection:
                connection.exec_driver_sql(f"CREATE DATABASE {name} TEMPLATE pattern")
            return server.set(database=name)

        yield made, administrator
