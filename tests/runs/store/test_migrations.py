"""Stores and imports of earlier versions open with all that is in them, and only once there is something to do."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from labcore.errors import LabError
from labcore.runs.files.paths import imports
from labcore.runs.imports import imported
from labcore.runs.spec.session import Record
from labcore.runs.store import migrations, schema
from labcore.runs.store.schema import meta, runs
from labcore.runs.store.store import Store
from tests.imports import ROOT
from tests.runs.fake import grpo

EXACT = 0.1 + 0.2  # has no short decimal form
CSV = b"step,reward\n1,0.25\n2,0.5\n"

SINCE = {"parent": 2, "sweep": 2, "digest": 3, "number": 5, "places": 9, "stops_early": 9}  # columns of runs
MARKS = {"star": "BOOLEAN", "tags": "TEXT", "note": "TEXT", "deleted": "DOUBLE PRECISION"}  # of runs, in version 3


def turn_back(store: Store, version: str) -> None:
    """Turn the tables into those that the lab of that version made, with all that it knew of each run."""
    marked = store.marks()
    with store._writing() as connection:
        for name, since in SINCE.items():
            if int(version) < since:
                connection.execute(sa.text(f"ALTER TABLE lab_runs DROP COLUMN {name}"))
        for name, kind in MARKS.items() if version == "3" else ():
            connection.execute(sa.text(f"ALTER TABLE lab_runs ADD COLUMN {name} {kind}"))
        for run_id, marks in marked.items() if version == "3" else ():
            connection.execute(sa.text("UPDATE lab_runs SET star = :star, tags = :tags, note = :note, "
                                       "deleted = :deleted WHERE id = :id"),
                               {**vars(marks), "tags": json.dumps(marks.tags), "id": run_id})
        connection.execute(sa.text("DROP TABLE lab_watched"))
        if int(version) < 10:
            connection.execute(sa.text("DROP TABLE lab_marks" if int(version) < 4 else
                                       "ALTER TABLE lab_marks DROP COLUMN project"))
        if version in ("7", "8", "9"):
            connection.execute(sa.text("ALTER TABLE lab_sweeps DROP COLUMN name"))
        if version == "7":
            connection.execute(sa.text("ALTER TABLE lab_sweeps DROP COLUMN fault"))
        elif int(version) < 7:
            connection.execute(sa.text("DROP TABLE lab_sweeps"))
        if int(version) < 6:
            connection.execute(schema.meta.delete().where(schema.meta.c.key == "number"))
        connection.execute(schema.meta.update().where(schema.meta.c.key == "version"), {"value": version})
    store.dispose()


def old_import(label: str, deleted: float | None = None, **marks) -> str:
    """Imported metrics as versions before 4 kept them: marks in about.json, and the trash a folder."""
    about, = imported.keep(store := Store(), f"{label}.csv", CSV, label)
    path = imports() / about.id / "about.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "star": False, "tags": [], "note": "",
                                "deleted": None, **marks}, indent=2))
    if deleted:
        trash = imports() / ".trash"
        trash.mkdir(exist_ok=True)
        os.utime(path.parent, (deleted, deleted))
        path.parent.rename(trash / about.id)
    store.dispose()
    return about.id


def numbered_as_before(store: Store) -> None:
    """All runs are counted together, as versions did that knew no numbers within a sweep."""
    with store._writing() as connection:
        for number, run_id in enumerate(connection.scalars(sa.select(runs.c.id).order_by(runs.c.created)).all(), 1):
            connection.execute(runs.update().where(runs.c.id == run_id), {"number": number})
            connection.execute(meta.update().where(meta.c.key == "number"), {"value": str(number)})


EARLIER = migrations.VERSIONS[:-1]


@pytest.mark.usefixtures("each_database")
@pytest.mark.parametrize("version", EARLIER)
def test_a_store_of_an_earlier_version_is_brought_up_with_all_that_is_in_it(store, version):
    parent = store.create(grpo())
    child = store.create(replace(grpo(), parent=(parent, 0)), mine=True, sweep=None if version == "1" else "sweep-1")
    store.append(child, Record(1, 8, {"reward": EXACT}), 1.0)
    gone = store.create(grpo())
    if kept := int(version) >= 3:
        store.mark(parent, star=True, tags=["paper", "β = 0"], note="why")
        store.trash([gone])
        store.keep_summaries({parent: "short"})
    numbered_as_before(store)
    before, summaries = (store.runs(), store.trashed()), store.summaries()
    turn_back(store, version)
    for _ in range(2):  # the second time there is nothing to do
        opened = Store(store.url)
        assert (opened.runs(), opened.trashed()) == before
        assert [row.id for row in opened.children(parent)] == [child]
        assert opened.run(child).sweep == (None if version == "1" else "sweep-1")
        assert opened.steps_after(child)[0].metrics["reward"] == EXACT and opened.summaries() == summaries
        assert set(opened.marks()) == ({parent, gone} if kept else set())
    opened.mark(child, star=True, tags=["kept"], note="why")
    opened.keep_summaries({child: "short"})
    opened.restore([gone] if kept else [])
    opened.set_state(child, "stopped")
    opened.trash([child])
    assert [row.id for row in opened.trashed()] == [child] and {row.id for row in opened.runs()} == {parent, gone}
    assert opened.purge(time.time()) == [child] and opened.run(opened.create(grpo())).state == "queued"
    assert [row.number for row in opened.runs()] == [4, 3, 1], "the numbers stay; the newest is first"
    opened.create_all([grpo()], sweep="sweep-2", halving="{}")
    assert opened.halvings() == {"sweep-2": "{}"} and opened.unjudged() == {}


def tables(store: Store) -> dict[str, dict[str, tuple[str, bool]]]:
    """Of each table its columns, each with its type and whether it may be empty."""
    with store._reading() as connection:
        there = sa.inspect(connection)
        return {name: {column["name"]: (str(column["type"]), column["nullable"]) for column in there.get_columns(name)}
                for name in there.get_table_names()}


@pytest.mark.usefixtures("each_database")
@pytest.mark.parametrize("version", EARLIER)
def test_a_store_of_an_earlier_version_ends_with_the_tables_of_a_new_one(store, version):
    new = tables(store)
    turn_back(store, version)
    assert tables(store) != new
    brought_up = tables(Store(store.url))
    left = [brought_up["lab_runs"].pop(name) for name in MARKS if name in brought_up["lab_runs"]]
    assert brought_up == new and len(left) == (len(MARKS) if version == "3" else 0)


@pytest.mark.usefixtures("each_database")
@pytest.mark.parametrize("version", EARLIER[:8])  # since version 9 a run says so itself
def test_runs_that_were_stopped_early_are_known_as_such_in_an_earlier_store(store, version):
    said = {"Stopped early at step 4: its reward 0.1 is not the best of 3 runs at this step.": True,
            "The run was stopped at step 4.": False}
    ids = {store.create(grpo(), mine=True): message for message in said}
    for run_id, message in ids.items():
        store.set_state(run_id, "stopped", message)
    numbered_as_before(store)
    turn_back(store, version)
    assert {message: Store(store.url).run(run_id).early for run_id, message in ids.items()} == said


def test_the_version_is_that_of_the_last_script():
    scripts = migrations._scripts("base")
    assert [script.revision for script in scripts] == [*migrations.VERSIONS] and scripts[-1].revision == schema.VERSION
    assert all(Path(script.path).name.startswith(f"v{script.revision}_") for script in scripts)
    assert (migrations.REVISIONS / "__init__.py").exists(), "it is a package, so that it is installed"


def test_alembic_is_not_loaded_where_there_is_nothing_to_do(store):
    program = "import sys; from labcore.runs.store.store import Store; Store(); print('alembic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=60, capture_output=True, text=True,
                          check=True)
    assert done.stdout.split() == ["False"]


@pytest.mark.parametrize("version", ["1", "2", "3", None])
def test_imports_of_an_earlier_version_keep_their_marks_and_their_place_in_the_trash(store, version):
    plain, marked = old_import("plain"), old_import("marked", star=True, tags=["β", "x"], note="Two\nlines")
    lying = old_import("lying", deleted=1e9, tags=["old"])
    if version:
        turn_back(store, version)
    else:  # the store was deleted, and is made anew
        store.dispose()
        for path in Path(sa.make_url(store.url).database).parent.glob("lab.db*"):
            path.unlink()
    for _ in range(2):
        opened = Store(store.url)
        found = {run.id: run for run in imported.listed(opened)}
        assert set(found) == {plain, marked}
        assert (found[marked].star, found[marked].tags, found[marked].note) == (True, ("β", "x"), "Two\nlines")
        assert (found[plain].star, found[plain].tags, found[plain].note) == (False, (), "")
        (trashed,) = imported.trashed(opened)
        assert (trashed.id, trashed.deleted, trashed.tags) == (lying, 1e9, ("old",))
        assert imported.load(lying).column("reward")[1].tolist() == [0.25, 0.5]
        assert not (imports() / ".trash").exists()
    opened.restore([lying])
    opened.mark(marked, star=False)
    assert not any(run.deleted or run.star for run in imported.listed(Store(store.url)))
    assert len(imported.listed(opened)) == 3


def test_what_cannot_be_read_of_old_imports_is_in_nobodys_way(store):
    broken, odd, twice = old_import("broken"), old_import("odd", deleted=1e9), old_import("twice", deleted=1e9)
    (imports() / broken / "about.json").write_text("{")
    (imports() / ".trash" / odd / "about.json").write_text("[]")
    imported.keep(store, "twice.csv", CSV, "twice")
    (imports() / "notes.txt").write_text("mine")
    turn_back(store, "3")
    opened = Store(store.url)
    assert {run.id for run in imported.listed(opened)} == {broken, twice}
    assert [run.id for run in imported.trashed(opened)] == [odd]


def test_a_folder_that_cannot_be_moved_is_told_and_nothing_is_lost(store, monkeypatch):
    lying = old_import("lying", deleted=1e9)
    turn_back(store, "3")

    def refused(*_):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as denied, pytest.raises(LabError, match="check the folder's permissions"):
        denied.setattr(Path, "rename", refused)
        Store(store.url)
    assert [run.id for run in imported.trashed(Store(store.url))] == [lying]
