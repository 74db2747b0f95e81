"""Writers take turns, so none of them works on files meanwhile, is silent in its turn, or gives a step up at once."""

import os
import time
from dataclasses import replace

import pytest
import sqlalchemy as sa

from labcore.errors import LabError
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files import storage, uploads
from labcore.runs.files.paths import run_folder
from labcore.runs.lists import cleanup
from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import Record
from labcore.runs.store import dialects
from labcore.runs.store.store import Store
from tests.runs.fake import grpo
from tests.runs.store.postgres import THERE


def forked(store):
    parent = store.create(grpo())
    child = store.create(replace(grpo(), parent=(parent, 3)))
    assert store.run(child).spec.parent == (parent, 3)


def from_a_file(store):
    file = uploads.root() / "0123456789abcdef" / "elsewhere.jsonl"
    store.create(make(algorithm_key="grpo", task_key="sort", model=str(file)))


def cleaned_up(store):
    file = uploads.keep("old.jsonl", b"{}")
    for path in (file, file.parent):
        os.utime(path, (0, 0))
    assert cleanup.remove_uploads(store, [file.parent.name]) == {file.parent.name: 2}


@pytest.mark.parametrize(("owner", "name", "gives", "change"), [
    (checkpoint, "take_along", None, forked), (storage, "has", True, from_a_file),
    (cleanup, "_on_disk", (), cleaned_up)])
def test_nobody_waits_while_files_are_looked_at_or_copied(monkeypatch, owner, name, gives, change, store):
    monkeypatch.setattr(dialects, "BUSY_SECONDS", 0)
    other, done = Store(), []
    run_id = other.create(grpo())

    def meanwhile(*_given, **_named):
        done.append(other.log(run_id, "note", {"text": "here"}, 0))
        return gives

    monkeypatch.setattr(owner, name, meanwhile)
    change(store)
    assert done and len(other.events_after(run_id)) == 1 + len(done)


def test_a_file_that_is_deleted_just_before_its_run_is_added_is_missed(monkeypatch):
    store, file = Store(), uploads.keep("mine.jsonl", b"{}")
    spec, writing = make(algorithm_key="grpo", task_key="sort", model=str(file)), store._writing

    def cleaned():
        file.unlink()
        return writing()

    monkeypatch.setattr(store, "_writing", cleaned)
    with pytest.raises(LabError, match=r"mine\.jsonl was deleted by a clean-up"):
        store.create(spec)
    assert store.runs() == []


def test_a_fork_of_a_long_queue_has_what_it_starts_from_when_it_is_made(store):
    parent = store.create(grpo())
    checkpoint.save(run_folder(parent), 3, lambda folder: (folder / "state.json").write_text("{}"))
    (run_folder(parent) / "spec.json").write_text("{}")
    children = store.create_all([replace(grpo(), parent=(parent, 3))] * 3)
    assert all((run_folder(child) / "start" / "checkpoint" / "state.json").exists() for child in children)


def test_a_step_is_tried_once_more_where_the_store_was_busy(monkeypatch, store):
    run_id = store.create(grpo())
    rows, faults = store._writing_rows, [LabError("It was busy.")]

    def busy():
        if faults:
            raise faults.pop()
        return rows()

    monkeypatch.setattr(store, "_writing_rows", busy)
    assert store.append(run_id, Record(1, 8, {"reward": 1.0}), 0.5) and store.run(run_id).step == 1
    faults[:] = [LabError("It was busy."), LabError("It is busy.")]
    with pytest.raises(LabError, match="It was busy"):
        store.append(run_id, Record(2, 8, {"reward": 1.0}), 0.5)
    assert store.claim(run_id, 77, "far")
    with pytest.raises(LabError, match="belongs to another process"):
        store.append(run_id, Record(2, 8, {"reward": 1.0}), 0.5)


@pytest.mark.parametrize("each_database", [pytest.param("postgresql", marks=THERE)], indirect=True)
def test_a_writer_that_falls_silent_loses_its_turn(each_database, monkeypatch):
    monkeypatch.setattr(dialects, "IDLE_SECONDS", 1)
    store, other = Store(), Store()
    run_id = other.create(grpo())
    with pytest.raises(LabError, match="idle-in-transaction timeout"), store._writing() as connection:
        time.sleep(1.5)
        other.log(run_id, "note", {"text": "here"}, 0)  # it waits 10 s at most
        connection.execute(sa.text("SELECT 1"))
    assert store.run(run_id).id == run_id
