"""The databases that keep a store: every test that asks for `each_database` runs on SQLite and on PostgreSQL.

The PostgreSQL is a server of the tests' own, in a temporary folder, on a Unix socket; where Debian's `postgresql` or
the driver is not installed, these tests are skipped.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from labcore.store.store import Store

PROGRAMS = max(Path("/usr/lib/postgresql").glob("*/bin/initdb"), default=Path("initdb")).parent
MISSING = ("PostgreSQL is not installed: apt install postgresql" if not PROGRAMS.is_absolute() else
           "psycopg is not installed: pip install -r requirements-cluster.txt"
           if importlib.util.find_spec("psycopg") is None else "")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.skipif(bool(MISSING), reason=MISSING))])
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
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # the path of a socket must be short
    user = _user_of(folder)
    data = folder / "data"
    control = [PROGRAMS / "pg_ctl", "--pgdata", data, "--wait"]
    _run([PROGRAMS / "initdb", "--pgdata", data, "--username=lab", "--auth=trust", "--no-sync", "--locale=C",
          "--encoding=UTF8"], user)
    _run([*control, f"--log={folder / 'log'}", "--options",
          f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off -c shared_buffers=16MB", "start"],
         user)
    try:
        server = sa.make_url(f"postgresql+psycopg://lab@/postgres?host={folder}")
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
    finally:
        _run([*control, "--mode=immediate", "stop"], user)
        shutil.rmtree(folder)


def _user_of(folder: Path) -> str | None:
    """Who is to run the server in `folder`, to whom it is given: PostgreSQL refuses to be run by root."""
    if os.getuid():
        return None
    owner = pwd.getpwnam("postgres")  # Debian's package makes it
    os.chown(folder, owner.pw_uid, owner.pw_gid)
    return owner.pw_name


def _run(command: list[str | Path], user: str | None) -> None:
    subprocess.run(command, check=True, user=user, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
