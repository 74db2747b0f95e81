"""What is wrong with a store is one sentence that says what to do: a full disk, a locked file, a damaged one."""

import random
import shutil
import sqlite3
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from labcore.cli.main import main
from labcore.errors import LabError
from labcore.runs.files.paths import home
from labcore.runs.spec.session import Record
from labcore.runs.store import faults, schema
from labcore.runs.store.store import Store
from tests.runs.fake import grpo

IN_MEMORY = ("sqlite://", "sqlite:///:memory:", "sqlite+pysqlite:///:memory:", "sqlite:///file::memory:?uri=true",
             "sqlite:///file:x?mode=memory&cache=shared&uri=true", "sqlite:///file:/x?vfs=memdb&uri=true")
DAMAGED = r"The store .*lab\.db is damaged|The file .*lab\.db is not a readable store"


def sentence(error: pytest.ExceptionInfo[LabError]) -> str:
    text = str(error.value)
    assert "\n" not in text and text.endswith(".")
    return text


@pytest.mark.parametrize(("says", "name", "words"), [
    ("database or disk is full", "SQLITE_FULL", "is full: free some space"),
    ("could not extend file: No space left on device", "", "is full: free some space"),
    ("disk I/O error", "SQLITE_IOERR_SHMSIZE", "is full: free some space"),
    ("disk I/O error", "SQLITE_IOERR_WRITE", "check that its disk has room and is still connected"),
    ("disk I/O error", "SQLITE_IOERR_READ", "check that its disk has room and is still connected"),
    ("database is locked", "SQLITE_BUSY", "was busy for more than 10 s"),
    ("attempt to write a readonly database", "SQLITE_READONLY", "check its folder's permissions"),
    ("unable to open database file", "SQLITE_CANTOPEN", "check its folder's permissions"),
    ("file is not a database", "SQLITE_NOTADB", "is not a readable store"),
    ("database disk image is malformed", "SQLITE_CORRUPT", "is damaged (database disk image is malformed)"),
    ("no such table: lab_steps", "SQLITE_ERROR", "is damaged (no such table: lab_steps)"),
    ('connection failed: connection to server at "db", port 5432 failed: Connection refused\n\tIs it running?', "",
     'cannot be reached (connection failed: connection to server at "db", port 5432 failed: Connection refused)'),
    ('connection to server on socket "/run/.s.PGSQL.5432" failed: No such file or directory', "",
     "cannot be reached ("),
    ("the connection is lost", "", "cannot be reached (the connection is lost)"),
    ('connection to server at "db" failed: FATAL:  password authentication failed for user "lab"', "",
     "refused the login"),
    ("connection to server at \"db\" failed: FATAL:  sorry, too many clients already", "", "has no free connection"),
    ("a password is written here, and no such file or directory there", "", "cannot be used now"),
    ("cannot execute INSERT in a read-only transaction", "", "is read-only"),
    ("canceling statement due to lock timeout", "", "was busy for more than 10 s"),
])
def test_what_a_database_says_becomes_one_sentence(store, says, name, words):
    fault = sqlite3.OperationalError(says)
    fault.sqlite_errorname = name
    found = faults.in_words(sa.exc.OperationalError("INSERT", {}, fault), store.url)
    assert isinstance(found, LabError) and words in str(found) and "\n" not in str(found)


def test_a_missing_driver_names_the_file_to_install_it_from(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(LabError, match=r"driver psycopg is not installed: .* requirements-cluster\.txt") as error:
        Store("postgresql+psycopg://lab@localhost/lab")
    sentence(error)


def test_a_fault_of_the_lab_s_own_stays_what_it_is(store):
    error = sa.exc.IntegrityError("INSERT", {}, sqlite3.IntegrityError("UNIQUE constraint failed: lab_runs.id"))
    assert faults.in_words(error, store.url) is error


@pytest.mark.parametrize("url", IN_MEMORY)
def test_a_store_in_memory_is_refused(monkeypatch, capsys, url):
    monkeypatch.setenv("RL_LAB_STORE", url)
    assert main(["runs"]) == 1
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and "in memory, where every run would be lost" in said.err


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize("table", sorted(schema.metadata.tables))
def test_a_store_without_one_of_its_tables_says_which(store, table):
    run_id = store.create(grpo())
    with store._writing() as connection:
        connection.execute(sa.text(f"DROP TABLE {table}"))
    with pytest.raises(LabError, match=DAMAGED):  # while it is open; between them these use every table
        store.create(grpo())
        store.delete(run_id)
        with store.taking("a-watched-run"):
            pass
    with pytest.raises(LabError, match=DAMAGED) as error:
        Store()
    assert table in sentence(error)


def test_a_store_that_lost_its_tables_but_one_is_not_taken_for_a_new_one(store):
    store.create(grpo())
    with store._writing() as connection:
        for table in schema.metadata.tables.keys() - {"lab_steps"}:
            connection.execute(sa.text(f"DROP TABLE {table}"))
    with pytest.raises(LabError, match=DAMAGED):
        Store()


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    """The file of a store with three runs of 40 steps."""
    path = tmp_path_factory.mktemp("whole") / "lab.db"
    store = Store(f"sqlite:///{path}")
    for _ in range(3):
        run_id = store.create(grpo(), mine=True)
        for step in range(1, 41):
            store.append(run_id, Record(step, step, {"reward": step / 3, "kl": 1e-9}), float(step))
        store.set_state(run_id, "stopped")
    store.dispose()
    return path.read_bytes()


def read_all(data: bytes) -> dict[str, list[tuple]]:
    """Every run's steps, as a store with this file gives them."""
    shutil.rmtree(home(), ignore_errors=True)
    home().mkdir(parents=True)
    (home() / "lab.db").write_bytes(data)
    store = Store()
    found = {row.id: [(step.step, step.seconds, step.metrics) for step in store.steps_after(row.id)]
             for row in store.runs() + store.trashed()}
    for run_id in found:
        store.events_after(run_id)
        store.columns([run_id], ["reward"])
    store.dispose()
    return found


def cut(data: bytes, at: random.Random) -> bytes:
    return data[:at.randrange(1, len(data))]


def random_page(data: bytes, at: random.Random) -> bytes:
    place = at.randrange(len(data) // 4096) * 4096
    return data[:place] + at.randbytes(4096) + data[place + 4096:]


def random_bytes(data: bytes, at: random.Random) -> bytes:
    for _ in range(8):
        place = at.randrange(len(data) - 64)
        data = data[:place] + at.randbytes(64) + data[place + 64:]
    return data


@pytest.mark.parametrize("damage", [cut, random_page, random_bytes])
def test_a_damaged_file_is_told_and_no_run_in_it_is_shown_with_fewer_rows(whole, damage):
    expected, refused = read_all(whole), 0
    for seed in range(25):
        try:
            found = read_all(damage(whole, random.Random(seed)))
        except LabError as error:
            refused += 1
            assert "\n" not in str(error)
        else:
            assert [len(rows) for rows in found.values()] == [len(rows) for rows in expected.values()]
    assert refused == 25 if damage is cut else refused > 5


@pytest.mark.parametrize("value", ["", "{", "\x00", b"\xff\xfe"])
def test_a_row_that_cannot_be_read_is_told(store, value):
    run_id = store.create(grpo(), mine=True)
    store.append(run_id, Record(1, 1, {"reward": 1.0}), 1.0)
    with store._writing() as connection:
        connection.execute(schema.steps.update(), {"metrics": "x"})
        connection.exec_driver_sql("UPDATE lab_steps SET metrics = CAST(? AS TEXT)", (value,))
    with pytest.raises(LabError, match=DAMAGED) as error:
        store.steps_after(run_id)
    sentence(error)


@pytest.mark.parametrize("value", [b"{}", "7", "[1]"])
def test_metrics_that_are_none_are_told(store, value):
    run_id = store.create(grpo(), mine=True)
    store.append(run_id, Record(1, 1, {"reward": 1.0}), 1.0)
    with store._writing() as connection:
        connection.exec_driver_sql("UPDATE lab_steps SET metrics = ?", (value,))
    with pytest.raises(LabError, match=DAMAGED) as error:
        store.steps_after(run_id)
    sentence(error)
    if isinstance(value, bytes):
        with pytest.raises(LabError, match=DAMAGED):
            store.logged(run_id)


@pytest.mark.parametrize("column, value", [("spec", "{"), ("spec", "7"), ("tags", "[")])
def test_a_run_that_cannot_be_read_is_named(store, column, value):
    run_id = store.create(grpo(), mine=True)
    store.mark(run_id, tags=["a"])
    table = "lab_runs" if column == "spec" else "lab_marks"
    with store._writing() as connection:
        connection.exec_driver_sql(f"UPDATE {table} SET {column} = ?", (value,))
    for read in (lambda: store.run(run_id), store.runs):
        with pytest.raises(LabError, match=DAMAGED) as error:
            read()
        sentence(error)
        assert column != "spec" or run_id in str(error.value)


def test_a_file_that_is_no_store_is_refused(tmp_path):
    path = tmp_path / "notes.db"
    path.write_text("not a database at all, whatever its name says\n" * 100)
    with pytest.raises(LabError, match=r"notes\.db is not a readable store"):
        Store(f"sqlite:///{path}")


# ---------------------------------------------------------------- the file goes away


def moved(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def replaced(path: Path) -> None:
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


def unplugged(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


@pytest.mark.parametrize("go", [Path.unlink, moved, replaced, unplugged])
def test_nothing_is_written_to_a_store_whose_file_is_gone_or_another_one(tmp_path, monkeypatch, go):
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / "lab"))
    store = Store()
    run_id = store.create(grpo())
    go(home() / "lab.db")
    for use in (lambda: store.create(grpo()), lambda: store.run(run_id)):
        with pytest.raises(LabError, match=r"lab\.db was moved, deleted or replaced") as error:
            use()
        sentence(error)


def test_a_store_that_is_put_back_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / "lab"))
    store = Store()
    run_id = store.create(grpo())
    unplugged(home() / "lab.db")
    with pytest.raises(LabError):
        store.run(run_id)
    (tmp_path / "elsewhere").rename(home())
    assert store.claim(run_id) and store.run(run_id).state == "starting"
