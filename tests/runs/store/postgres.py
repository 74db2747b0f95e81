"""A PostgreSQL server of one's own, in a temporary folder, on a Unix socket."""

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

PROGRAMS = max(Path("/usr/lib/postgresql").glob("*/bin/initdb"), default=Path("initdb")).parent
MISSING = ("PostgreSQL is not installed: apt install postgresql" if not PROGRAMS.is_absolute() else
           "psycopg is not installed: pip install -r requirements-cluster.txt"
           if importlib.util.find_spec("psycopg") is None else "")
THERE = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@contextmanager
def server() -> Iterator[sa.URL]:
    """The address of its first database, as the user who may do all. It ends with the block, and its data with it."""
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
        yield sa.make_url(f"postgresql+psycopg://lab@/postgres?host={folder}")
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
