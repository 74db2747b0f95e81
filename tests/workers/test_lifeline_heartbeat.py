"""That a worker lives is seen while it has no step to show, and one whose run was taken from it ends."""

import os
import platform
import threading
import time

import pytest

from labcore.errors import LabError, NotOwner
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import run_folder
from labcore.runs.store.rows import GOING
from labcore.workers import lifeline
from labcore.workers.worker import drive
from tests.runs import fake
from tests.words import says
from tests.workers.test_base import with_sft
from tests.workers.tools import run, until


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(lifeline, "BEAT_SECONDS", 0.01)


def beats(store, run_id):
    """Wait for the run's next heartbeat."""
    before = store.run(run_id).heartbeat
    until(lambda: store.run(run_id).heartbeat > before, seconds=5)


def test_a_long_step_beats(store):
    run_id = store.create(fake.grpo(3))
    assert run(store, run_id, {2: lambda: beats(store, run_id)}) == "finished"


def test_a_run_beats_while_its_base_is_made_and_so_does_its_sft(store):
    run_id = store.create(with_sft())
    seen = []

    def on_record(who, record, _seconds):
        if who != run_id and record.step == 2:
            for each in (run_id, who):
                beats(store, each)
            seen.append(who)

    assert drive(store, run_id, on_record=on_record, start=fake.start) == "finished"
    assert len(seen) == 1


def taken(store, run_id):
    """Somebody takes the run for lost, resumes it and has it on another machine."""
    assert run_id in store.lost(os.getpid(), platform.node(), "its process is gone")
    store.requeue(run_id)
    assert store.claim(run_id, 4242, "far")


class Driven(threading.Thread):
    """A worker beside the test; `fault` is what it ended with."""

    def __init__(self, store, run_id):
        super().__init__(daemon=True)
        self.args, self.fault = (store, run_id), None
        self.start()

    def run(self):
        try:
            drive(*self.args, start=fake.start)
        except LabError as error:
            self.fault = error


def test_a_paused_worker_whose_run_was_taken_ends_and_leaves_all_to_its_successor(store):
    run_id = store.create(fake.grpo(1000), mine=True)
    store.ask(run_id, "pause")
    worker = Driven(store, run_id)
    until(lambda: store.run(run_id).state == "paused")
    (reserve,) = run_folder(run_id).glob(".reserve")
    steps = checkpoint.steps(run_folder(run_id))
    taken(store, run_id)
    before = store.run(run_id)
    worker.join(10)
    assert isinstance(worker.fault, NotOwner) and says(worker.fault, run_id, "another process", "4242", "far")
    assert store.run(run_id) == before and reserve.exists() and checkpoint.steps(run_folder(run_id)) == steps


def test_what_is_asked_of_a_run_that_was_taken_is_left_to_its_successor(store, monkeypatch):
    monkeypatch.setattr(lifeline, "BEAT_SECONDS", 60)
    run_id = store.create(fake.grpo(1000), mine=True)
    store.ask(run_id, "pause")
    worker = Driven(store, run_id)
    until(lambda: store.run(run_id).state == "paused")
    taken(store, run_id)
    store.ask(run_id, "stop")
    worker.join(10)
    assert isinstance(worker.fault, NotOwner)
    assert [control.command for control in store.asked(run_id)] == ["stop"] and store.run(run_id).state == "starting"


@pytest.mark.parametrize("by", ["a control that is not for it", "its heartbeat"])
def test_a_worker_whose_run_is_taken_while_its_base_is_made_stops_the_sft_and_ends(store, monkeypatch, by):
    run_id, asks = store.create(with_sft()), by == "a control that is not for it"
    monkeypatch.setattr(lifeline, "BEAT_SECONDS", 60 if asks else 0.01)

    def on_record(who, record, _seconds):
        if who != run_id and record.step == 2:
            assert set(store.lost(os.getpid(), platform.node(), "its process is gone")) == {run_id, who}
            store.requeue(run_id)
            store.requeue(who, mine=True)  # the SFT run is still this process's
            assert store.claim(run_id, 4242, "far")
        elif who != run_id and record.step == 3:
            store.ask(run_id, "stop") if asks else time.sleep(0.5)

    with pytest.raises(NotOwner, match=f"{run_id} belongs to another process"):
        drive(store, run_id, on_record=on_record, start=fake.start)
    sft = store.run(run_id).base
    assert store.run(sft).state == "stopped" and store.run(sft).step in (2, 3)
    assert [control.command for control in store.asked(run_id)] == ["stop"] * asks


def test_a_run_whose_sft_was_taken_ends_in_words(store):
    run_id = store.create(with_sft())
    at_sft = []

    def on_record(who, record, _seconds):
        if who != run_id and not at_sft:
            at_sft.append(who)
            with store._writing() as connection:
                connection.exec_driver_sql(f"UPDATE lab_runs SET pid = 4242, host = 'far' WHERE id = '{who}'")

    assert drive(store, run_id, on_record=on_record, start=fake.start) == "failed"
    assert says(store.run(run_id).message, at_sft[0], "another process", "4242", "far")
    assert store.run(at_sft[0]).state in GOING


@pytest.mark.parametrize("within", [True, False], ids=["as the run ends", "after it"])
def test_a_pipe_that_ends_when_the_run_does_does_not_end_the_process(monkeypatch, within):
    """The main thread may see the cut and leave before the timer has begun; and a process may do something else after
    a run, whose lifeline is over by then."""
    exits = []
    monkeypatch.setattr(lifeline, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(os, "_exit", exits.append)
    reading, writing = os.pipe()
    if within:
        monkeypatch.setattr(lifeline.Lifeline, "drop_soon", lambda held: held._over.set())
    before = {*threading.enumerate()}
    with lifeline.Lifeline(reading) as held:
        watching, = {*threading.enumerate()} - before
        if within:
            os.close(writing)
            watching.join(5)
            held._timer.join(5)
    if not within:
        os.close(writing)
        watching.join(5)
        time.sleep(0.05)
    os.close(reading)
    assert not watching.is_alive() and held.cut == within and not exits
