"""A lab that is shared for reading shows what is there and changes nothing, also with a user who may only SELECT."""

import os
import sqlite3
import subprocess
from pathlib import Path

import pytest
import sqlalchemy as sa

from labcore.analysis.lessons import progress
from labcore.errors import LabError
from labcore.runs import jobs, mixes
from labcore.runs.files import uploads
from labcore.runs.files.paths import SHARED, home, read_only, run_folder
from labcore.runs.files.removal import remove
from labcore.runs.imports import imported
from labcore.runs.lists import cleanup, marks
from labcore.runs.spec.session import Record
from labcore.runs.store.schema import meta
from labcore.runs.store.store import Store
from labcore.tasks import labels, votes
from labcore.workers.launcher import NoLauncher
from tests.app.seeding import seed
from tests.runs.store.postgres import PROGRAMS, THERE
from tests.words import saying

GRANTS = Path(__file__).resolve().parents[3] / "deploy" / "readonly.sql"
SIDE = votes.Side("a", "1")
WRITES = {
    "create": lambda store, run: store.create(store.run(run).spec),
    "ask": lambda store, run: store.ask(run, "stop"),
    "requeue": lambda store, run: store.requeue(run),
    "append": lambda store, run: store.append(run, Record(7, 700, {"reward": 0.5}), 1.0),
    "log": lambda store, run: store.log(run, "knob", {}, 1),
    "star": lambda store, run: marks.star(store, [run]),
    "trash": lambda store, run: marks.trash(store, [run]),
    "restore": lambda store, run: marks.restore(store, [run]),
    "delete": lambda store, run: marks.delete(store, [run]),
    "purge": lambda store, run: marks.purge(store, 0, [row.id for row in store.trashed()]),
    "spare files": lambda store, run: cleanup.delete_spare(run),
    "a run's folder": lambda store, run: remove(run_folder(run)),
    "an upload": lambda store, run: uploads.keep("prompts.jsonl", b"{}"),
    "an import": lambda store, run: imported.keep(store, "other.csv", b"step,loss\n1,2\n2,3\n"),
    "a label": lambda store, run: labels.add(store.run(run).spec, {"prompt": "1+1="}, "a"),
    "a vote": lambda store, run: votes.tie("1+1=", SIDE, SIDE),
    "a mix": lambda store, run: mixes.save(mixes.Mix("mine", "grpo", {})),
    "a prediction": lambda store, run: progress.predict("lesson", 0),
    "a job": lambda store, run: NoLauncher(store).compute({"job": "answer", "run": run}),
    "a start": lambda store, run: NoLauncher(store).start(store.run(run).spec),
    "a resume": lambda store, run: NoLauncher(store).resume(run),
}


@pytest.fixture
def shared(monkeypatch):
    """Makes the lab one that is shared for reading from here on."""
    return lambda: monkeypatch.setenv("RL_LAB_READ_ONLY", "1")


def everything() -> dict[str, bytes]:
    """What lies in the lab's folder, but for SQLite's memory of its log."""
    return {str(path): path.read_bytes() for path in home().rglob("*") if path.is_file() and path.suffix != ".db-shm"}


@pytest.mark.parametrize("write", WRITES)
def test_every_write_is_refused_in_one_sentence(write, shared):
    run, old = (seed(Store(), "finished") for _ in range(2))
    marks.trash(Store(), [old])
    shared()
    store = Store()
    before = everything()
    with pytest.raises(LabError) as refused:
        WRITES[write](store, run)
    assert str(refused.value) == SHARED
    assert everything() == before


def test_a_reader_sees_what_is_there_and_leaves_the_housekeeping(each_database, shared, store):
    run = seed(store, "finished")
    marks.star(store, [run])
    old = seed(store, "finished")
    marks.trash(store, [old])
    shared()
    reader = Store()
    assert [row.id for row in reader.runs()] == [run] and reader.run(run).star
    assert reader.steps_after(run) == store.steps_after(run)
    assert reader.reconcile() == [] and marks.purge(reader, 0) == []
    assert [row.id for row in reader.trashed()] == [old]


def test_a_job_that_is_done_is_shown(shared):
    Store()
    spec = {"job": "sizes", "specs": []}
    result = jobs.compute(spec)
    shared()
    job = NoLauncher(Store()).compute(spec)
    assert jobs.outcome(job).result == result
    jobs.forget(job)
    assert jobs.outcome(job).result == result


def test_a_store_that_is_not_there_is_not_made(shared):
    shared()
    with pytest.raises(LabError, match=r"There is no store .*lab.db to read"):
        Store()
    assert not home().exists()


def test_an_empty_or_earlier_store_is_left_as_it_is(each_database, shared, store):
    with store._writing() as connection:
        connection.execute(meta.update().where(meta.c.key == "version"), {"value": "6"})
    shared()
    with pytest.raises(LabError, match=saying("earlier version", "open it once", "may write")):
        Store()
    with store._reading() as connection:
        assert connection.scalar(sa.select(meta.c.value).where(meta.c.key == "version")) == "6"


def test_an_empty_file_gets_no_tables(shared):
    home().mkdir(parents=True)
    sqlite3.connect(home() / "lab.db").execute("VACUUM").close()
    shared()
    with pytest.raises(LabError, match="holds no lab yet"):
        Store()


@pytest.mark.parametrize("each_database", [pytest.param("postgresql", marks=THERE)], indirect=True)
def test_a_user_who_may_only_select_reads_the_lab(each_database, shared, databases, monkeypatch):
    owner = sa.make_url(os.environ["RL_LAB_STORE"])
    run = seed(Store(), "finished")
    reader = owner.set(username=f"reader_{owner.database}")
    subprocess.run([PROGRAMS / "psql", "--quiet", "--set=ON_ERROR_STOP=1", f"--host={owner.query['host']}",
                    "--username=lab", "--set=owner=lab", f"--set=reader={reader.username}", f"--file={GRANTS}",
                    owner.database], check=True)
    monkeypatch.setenv("RL_LAB_STORE", reader.render_as_string())
    try:
        with pytest.raises(LabError, match=r"read-only|does not grant"):
            marks.star(Store(), [run])
        shared()
        found = Store()
        assert [row.id for row in found.runs()] == [run] and len(found.steps_after(run)) == 6
        assert found.marks() == {} and found.trashed() == [] and found.events_after(run) and found.controls(run) == []
        found.dispose()
    finally:
        with databases[1].connect() as connection:
            connection.exec_driver_sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = "
                                       f"'{reader.username}'")


@pytest.mark.parametrize(("said", "found"), [("", False), ("0", False), ("1", True), (" 1 ", True)])
def test_the_variable_says_it(said, found, monkeypatch):
    monkeypatch.setenv("RL_LAB_READ_ONLY", said)
    assert read_only() is found


def test_another_word_is_a_sentence(monkeypatch):
    monkeypatch.setenv("RL_LAB_READ_ONLY", "yes")
    with pytest.raises(LabError, match=r"RL_LAB_READ_ONLY is .yes.: set it to 1"):
        Store()
