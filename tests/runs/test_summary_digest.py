"""The summary that a worker leaves says what the whole curve says, and no list has to read that curve again."""

import json

import pytest

from labcore.errors import LabError
from labcore.exports.capsules import packing
from labcore.exports.capsules.importing import import_capsule
from labcore.runs import summary
from labcore.runs.files.paths import run_folder
from labcore.runs.fork import fork_spec
from labcore.runs.lists.all_runs import Shelf
from labcore.runs.store.store import Store
from labcore.runs.summary import Summary
from labcore.workers import training
from labcore.workers.worker import drive
from tests.runs import fake
from tests.runs.lists.tools import ended


def whole(store: Store, run_id: str) -> Summary:
    """The summary of all rows of a run, made at once."""
    rows = store.steps_after(run_id)
    return Summary("reward").extended(rows[-1].step, [row.metrics.get("reward") for row in rows])


def checked(store: Store, run_id: str) -> None:
    """The summary is in the store before any list asks for it, and says what the rows and the files say."""
    kept = Summary.read(store.summaries([run_id])[run_id], "reward")
    assert kept.size and kept.counted >= store.run(run_id).ended
    assert Summary(**{**vars(kept), "size": None, "counted": 0.0}) == whole(store, run_id)
    [shown] = [entry.summary for entry in Shelf(store).entries() if entry.id == run_id]
    assert shown == kept


@pytest.fixture
def stopped(store, monkeypatch):
    """A run of 100 steps that was stopped after 60, with a checkpoint of step 50 however slow the disk is."""
    monkeypatch.setattr(training, "CHECKPOINT_SHARE", 0)
    run_id = store.create(fake.grpo(100))
    assert drive(store, run_id, start=fake.start, on_record=lambda _, record, __: record.step == 60 and store.ask(
        run_id, "stop")) == "stopped"
    return run_id


def test_a_worker_leaves_the_summary_of_its_run(store, stopped):
    checked(store, stopped)
    assert whole(store, stopped).count == 60


def test_a_resumed_run_adds_to_it(store, stopped):
    store.requeue(stopped)
    assert drive(store, stopped, start=fake.start) == "finished"
    checked(store, stopped)
    assert whole(store, stopped).count == 100


def test_a_fork_has_its_own(store, stopped):
    child = store.create(fork_spec(store, stopped, 50, knobs={"beta": 0.2}))
    assert drive(store, child, start=fake.start) == "finished"
    checked(store, child)
    assert whole(store, child).count == 50 and whole(store, child).step == 100


def test_an_imported_capsule_brings_its_own(store, stopped, tmp_path, monkeypatch):
    path = packing.write(store, stopped, tmp_path / "run.zip")
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / "elsewhere"))
    other = Store()
    checked(other, import_capsule(other, path))


def test_a_run_that_was_killed_or_came_from_an_older_lab_is_brought_up_by_the_first_list(store, stopped):
    expected = whole(store, stopped)
    half = Summary("reward").extended(30, [row.metrics["reward"] for row in store.steps_after(stopped)[:30]])
    for kept in (None, half.to_json(), "{", json.dumps({"of": "another version"})):
        store.keep_summaries({stopped: kept})
        [entry] = Shelf(store).entries()
        assert (entry.summary.line, entry.summary.last, entry.summary.best) == (
            expected.line, expected.last, expected.best)


@pytest.mark.parametrize("error", [OSError("no such disk"), LabError("The store is gone."), MemoryError()], ids=repr)
def test_a_summary_that_cannot_be_kept_does_not_keep_a_run_from_ending(store, monkeypatch, error):
    def fails(*_):
        raise error

    monkeypatch.setattr(summary, "keep", fails)
    run_id = store.create(fake.grpo(5), mine=True)
    assert drive(store, run_id, start=fake.start) == "finished"
    assert Shelf(store).entries()[0].summary.count == 5


def test_its_files_are_counted_as_they_are_at_the_end(store):
    run_id = ended(store, files=100)
    summary.keep(store, run_id)
    assert Summary.read(store.summaries([run_id])[run_id], "reward").size == 500
    assert (run_folder(run_id) / "samples").is_dir()


def test_a_summary_that_comes_after_a_resume_is_not_kept(store, monkeypatch):
    run_id, counted = ended(store, state="stopped"), summary.sized

    def resumed_meanwhile(*given):
        store.requeue(run_id)
        return counted(*given)

    monkeypatch.setattr(summary, "sized", resumed_meanwhile)
    summary.keep(store, run_id)
    assert store.run(run_id).state == "queued" and store.summaries([run_id]) == {}
