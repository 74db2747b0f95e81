"""The columns beside a long run's checkpoints: the same numbers as the store's, whatever became of the file."""

import errno

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from labcore.analysis.compare.loading import Reader, load
from labcore.errors import LabError
from labcore.runs.files import atomic
from labcore.runs.files.paths import run_folder
from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import Record
from labcore.runs.store import columns
from labcore.runs.store.store import Store
from labcore.workers.worker import drive
from tests.runs import fake

METRICS = ["reward", "kl", "entropy"]  # the rows have no entropy, and a KL now and then


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(columns, "STEPS", range(3, 20))


class Watched(Store):
    """A store that remembers from which steps on it was read."""

    def __init__(self) -> None:
        super().__init__()
        self.read_after = []

    def columns(self, run_ids, keys, after=0):
        self.read_after.append(after)
        return super().columns(run_ids, keys, after)


@pytest.fixture
def store(each_database):
    return Watched()


@pytest.fixture
def run(store):
    """A going run of four rows."""
    run_id = store.create(make(algorithm_key="grpo", task_key="sort", steps=9, knobs={"sft_steps": 0}), mine=True)
    store.set_state(run_id, "running")
    grow(store, run_id, range(1, 5))
    return run_id


def grow(store, run_id, steps):
    for step in steps:
        metrics = {"reward": step / 10, "updates": float(step)} | ({"kl": 0.1 + step} if step % 2 else {})
        store.append(run_id, Record(step, 100 * step, metrics), 0.1 * step)


def check(store, run_id, first_read):
    """What is read is what the store says, from `first_read` on by the store's own rows."""
    told = store.columns([run_id], METRICS)[run_id]
    store.read_after.clear()
    found = columns.read(store, store.run(run_id), METRICS)
    for mine, theirs in zip(found, told, strict=True):
        np.testing.assert_array_equal(mine, np.array(theirs, float))
    assert store.read_after == [first_read]
    assert columns.logged(store, store.run(run_id)) == store.logged(run_id) >= {"reward", "kl"}


def test_without_a_file_everything_is_read_from_the_store(store, run):
    check(store, run, 0)


def test_with_a_file_only_what_came_later_is_read_from_the_store(store, run):
    columns.keep(store, run)
    check(store, run, 4)
    grow(store, run, range(5, 8))
    check(store, run, 4)
    columns.keep(store, run)
    check(store, run, 7)


def test_rows_beyond_a_step_need_no_file(store, run):
    columns.keep(store, run)
    steps, *_ = columns.read(store, store.run(run), METRICS, 2)
    assert steps.tolist() == [3, 4]
    grow(store, run, [5])
    assert columns.logged(store, store.run(run), 5) == set()


@pytest.mark.parametrize("steps", [range(5, 9), range(1, 4)], ids=["short", "very long"])
def test_a_run_for_which_it_is_not_worth_it_has_no_file(store, run, monkeypatch, steps):
    monkeypatch.setattr(columns, "STEPS", steps)
    columns.keep(store, run)
    assert not (run_folder(run) / columns.FILE).exists()


def test_only_the_process_that_has_the_run_writes_it(store, run):
    store.set_state(run, "stopped")
    columns.keep(store, run)
    assert not (run_folder(run) / columns.FILE).exists()


@pytest.mark.parametrize("content", [
    b"", b"nothing of the kind", None, save({"reward": np.ones(4)}), save({"step": np.empty(0)})],
    ids=["empty", "another file", "cut off", "no steps", "no rows"])
def test_a_damaged_file_is_passed_over(store, run, content):
    columns.keep(store, run)
    file = run_folder(run) / columns.FILE
    file.write_bytes(file.read_bytes()[:-40] if content is None else content)
    check(store, run, 0)


def test_a_file_of_more_rows_than_the_run_has_is_not_its_own(store, run):
    grow(store, run, [5])
    columns.keep(store, run)
    other = store.create(make(algorithm_key="grpo", task_key="sort", steps=9, knobs={"sft_steps": 0}), mine=True)
    store.set_state(other, "running")
    grow(store, other, range(1, 5))
    atomic.write_bytes(run_folder(other) / columns.FILE, (run_folder(run) / columns.FILE).read_bytes())
    check(store, other, 0)


def test_comparisons_read_the_file(store, run):
    before = load(store, [run], METRICS)
    columns.keep(store, run)
    store.read_after.clear()
    for traces in (load(store, [run], METRICS), Reader(store).traces([store.run(run)], METRICS)):
        assert traces[0].metrics["kl"][~np.isnan(traces[0].metrics["kl"])].tolist() == [1.1, 3.1]
        assert set(traces[0].axes) == set(before[0].axes)
    assert store.read_after == [4, 4]


def test_a_worker_leaves_the_file_of_a_long_run():
    store = Store()
    run_id = store.create(fake.grpo(5), mine=True)
    assert drive(store, run_id, start=fake.start) == "finished"
    assert load_file(run_folder(run_id) / columns.FILE)["step"].tolist() == [1, 2, 3, 4, 5]


def test_a_run_that_goes_on_has_no_file_until_it_ends_again():
    """Its store may be an older one by then, with other rows to come."""
    store = Store()
    run_id = store.create(fake.grpo(9), mine=True)
    seen = []

    def on_record(who, record, seconds):
        seen.append((run_folder(run_id) / columns.FILE).exists())
        if record.step == 4 and len(seen) == 4:
            store.ask(run_id, "stop")

    assert drive(store, run_id, on_record=on_record, start=fake.start) == "stopped"
    assert (run_folder(run_id) / columns.FILE).exists()
    store.requeue(run_id)
    assert drive(store, run_id, on_record=on_record, start=fake.start) == "finished"
    assert not any(seen) and load_file(run_folder(run_id) / columns.FILE)["step"].tolist() == list(range(1, 10))


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), LabError("The store is gone."),
                                   MemoryError()], ids=repr)
def test_a_file_that_cannot_be_written_does_not_keep_a_run_from_ending(monkeypatch, error):
    def fails(*_):
        raise error
    monkeypatch.setattr(columns, "keep", fails)
    store = Store()
    run_id = store.create(fake.grpo(5), mine=True)
    assert drive(store, run_id, start=fake.start) == "finished"
