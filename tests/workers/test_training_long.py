"""Long runs: what their workers keep so that pages open at once, and read of them when they are resumed."""

import pytest

from labcore.runs.files.paths import run_folder
from labcore.runs.store import steps as steps_module
from labcore.runs.store import thinned
from labcore.workers import watcher
from labcore.workers.worker import drive
from tests.runs import fake
from tests.watch.tools import begin, numbers, read, write
from tests.workers.test_alerts import stopped_at


@pytest.fixture(autouse=True)
def long_from_twenty(monkeypatch):
    for name, value in (("LONG", 20), ("KEEP_EVERY", 10)):
        monkeypatch.setattr(thinned, name, value)
    monkeypatch.setattr(steps_module, "MANY", 20)
    monkeypatch.setattr(watcher, "SETTLED_SECONDS", -1.0)


def last_kept(store, run_id) -> int:
    rows = thinned._kept(store.run(run_id))
    return rows[-1].step if rows else 0


def test_a_worker_keeps_thinned_rows_on_the_way_and_at_the_end(store):
    run_id = store.create(fake.grpo(47))
    seen = []
    drive(store, run_id, start=fake.FakeSession.start, on_record=lambda run, *_: seen.append(last_kept(store, run)))
    assert [*dict.fromkeys(seen)] == [0, 19, 29, 39], "all but the newest, whose stretch may get more"
    assert last_kept(store, run_id) == 46


def test_a_resumed_run_reads_its_rows_in_parts_and_no_file_of_before(store, monkeypatch):
    run_id = store.create(fake.grpo(60))
    drive(store, run_id, start=fake.FakeSession.start, on_record=stopped_at(store, run_id, 40))
    (run_folder(run_id) / thinned.FILE).write_bytes(b"of another state of the store")
    largest = [0]
    real = steps_module._steps

    def counted(rows):
        largest[0] = max(largest[0], len(rows))
        return real(rows)
    monkeypatch.setattr(steps_module, "CHUNK", 7)
    monkeypatch.setattr(steps_module, "_steps", counted)
    store.requeue(run_id)
    assert drive(store, run_id, start=fake.FakeSession.start) == "finished" and largest[0] <= 7
    assert [row.step for row in thinned.read(store, store.run(run_id))] == [*range(1, 61)]


def test_the_rows_of_a_watched_run_are_kept_until_numbers_come_late(store):
    write("r", begin("TRL", "qwen"), *(numbers(step, loss=1.0) for step in range(1, 41)))
    run, = read(store)
    assert last_kept(store, run.id) == 39
    write("r", numbers(7, kl=0.5))
    run, = read(store)
    found = next(row for row in thinned.read(store, store.run(run.id)) if row.step == 7)
    assert found.metrics == {"loss": 1.0, "kl": 0.5}
