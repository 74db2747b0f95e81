"""A step that takes long is not waited for: it is dropped, and the run can be resumed from the one before."""

import os
import platform
import signal
import threading
import time

import pytest

from labcore.errors import LabError, NotOwner
from labcore.runs.spec import activity
from labcore.runs.spec.activity import report
from labcore.runs.steering import Steering
from labcore.runs.store.store import Store
from labcore.workers import lifeline, long_step, training
from labcore.workers.worker import _Drive, drive
from tests.runs import fake
from tests.workers.tools import until


class Long(fake.FakeSession):
    """Its third step takes half a minute."""

    begun = threading.Event()

    def run(self):
        for record in super().run():
            if record and record.step == 3:
                Long.begun.set()
                end = time.monotonic() + 30
                while time.monotonic() < end:
                    time.sleep(0.01)
            yield record


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(lifeline, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(long_step, "LOOK_SECONDS", 0.05)
    Long.begun.clear()


def driven(store, run_id, ask) -> str:
    """Drive the run in the main thread; `ask` is called from another one within its long step."""
    def once_begun():
        Long.begun.wait(20)
        ask()
    thread = threading.Thread(target=once_begun, daemon=True)
    thread.start()
    state = drive(store, run_id, start=Long.start)
    thread.join()
    return state


@pytest.mark.parametrize("state, ask", [
    ("interrupted", lambda store, run_id: os.kill(os.getpid(), signal.SIGTERM)),
    ("stopped", lambda store, run_id: store.ask(run_id, "stop"))], ids=["SIGTERM", "stop"])
def test_a_run_ends_within_a_long_step_and_goes_on_from_the_last_whole_one(state, ask, store):
    run_id = store.create(fake.grpo(5))
    begun = time.monotonic()
    assert driven(store, run_id, lambda: ask(store, run_id)) == state
    assert time.monotonic() - begun < 15
    assert [step.step for step in store.steps_after(run_id)] == [1, 2]
    assert "step 3" in store.run(run_id).message
    assert not any(control.state == "asked" for control in store.controls(run_id))
    store.requeue(run_id)
    assert drive(store, run_id, start=fake.start) == "finished"
    assert [step.step for step in store.steps_after(run_id)] == [1, 2, 3, 4, 5]


def test_short_steps_are_whole(store):
    """What ends by itself is not dropped: the checkpoint is that of the last step."""
    run_id = store.create(fake.grpo(500))

    def cut(_run, record, _seconds):
        if record.step == 7:
            os.kill(os.getpid(), signal.SIGTERM)
    assert drive(store, run_id, start=fake.start, on_record=cut) == "interrupted"
    assert store.run(run_id).step == 7 and "at step 7" in store.run(run_id).message


def test_a_run_that_early_stopping_stops_within_a_step_keeps_its_reason_and_a_knob_that_was_moved(store):
    run_id = store.create(fake.grpo(5))

    def ask():
        store.ask(run_id, "set", {"knob": "beta", "value": 0.3})
        store.ask(run_id, "stop", {"why": "Stopped early at step 2.", "early": True})
    assert driven(store, run_id, ask) == "stopped"
    assert store.run(run_id).message == "Stopped early at step 2." and store.run(run_id).early
    assert [event.step for event in store.events_after(run_id) if event.kind == "knob"] == [3]
    store.requeue(run_id)
    assert drive(store, run_id, start=fake.start) == "finished"
    assert [event.payload["to"] for event in store.events_after(run_id) if event.kind == "knob"] == [0.3]


class Reporting(fake.FakeSession):
    """Its third step reports for half a minute, as sampling does."""

    def run(self):
        for record in super().run():
            if record and record.step == 3:
                end = time.monotonic() + 30
                while time.monotonic() < end:
                    report("sampling {} of {} tokens", 1, 8)
                    time.sleep(0.01)
            yield record


def test_a_step_that_reports_hears_a_stop_within_two_seconds():
    store, asked = Store(), []
    run_id = store.create(fake.grpo(5))

    def ask(_run, step, text):
        if step == 3 and not asked:
            assert text.startswith("step 3: sampling 1 of 8 tokens")
            asked.append(time.monotonic())
            store.ask(run_id, "stop")
    assert drive(store, run_id, start=Reporting.start, on_activity=ask) == "stopped"
    assert time.monotonic() - asked[0] < 2.0
    assert [step.step for step in store.steps_after(run_id)] == [1, 2]


def test_a_run_that_is_no_longer_its_own_ends_within_its_step():
    """It was taken for lost and resumed elsewhere."""
    store, asked = Store(), []
    run_id = store.create(fake.grpo(5))

    def lose(_run, step, _text):
        if step == 3 and not asked:
            asked.append(time.monotonic())
            assert run_id in store.lost(os.getpid(), platform.node(), "its process is gone")
            store.requeue(run_id)
            assert store.claim(run_id, 4242, "far")
    with pytest.raises(NotOwner, match="belongs to another process now"):
        drive(store, run_id, start=Reporting.start, on_activity=lose)
    assert time.monotonic() - asked[0] < 5.0, "the step would take half a minute"


class Moved(fake.FakeSession):
    """Its third step reports for a while, and cannot be taken back."""

    def run(self):
        for record in super().run():
            if record and record.step == 3:
                for place in range(60):
                    report("backward pass, layer {} of {}", place, 60)
                    time.sleep(0.01)
            yield record


@pytest.fixture
def held(monkeypatch):
    """Drive a run that is paused within its third step; `ask` is called while it waits there."""
    monkeypatch.setattr(long_step, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(activity, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(training, "LOSABLE_SECONDS", 0.0)
    store, asked = Store(), []
    run_id = store.create(fake.grpo(5))

    def pause(_run, step, _text):
        if step == 3 and not asked:
            asked.append(store.ask(run_id, "pause"))

    def driven(ask, seconds=10.0):
        def once_held():
            until(lambda: store.run(run_id).message.startswith("in step 3"), seconds)
            ask(store, run_id)
        thread = threading.Thread(target=once_held, daemon=True)
        thread.start()
        # A run that waits for ever would hold the tests.
        guard = threading.Timer(seconds, lambda: store.ask(run_id, "resume"))
        guard.start()
        begun = time.monotonic()
        state = drive(store, run_id, start=Moved.start, on_activity=pause)
        guard.cancel()
        thread.join()
        return state, time.monotonic() - begun, store, run_id
    return driven


def test_a_stop_of_a_run_that_is_paused_where_its_step_cannot_be_left_makes_the_step_and_ends(held):
    state, seconds, store, run_id = held(lambda store, run_id: store.ask(run_id, "stop"))
    assert state == "stopped" and seconds < 5.0
    assert [step.step for step in store.steps_after(run_id)] == [1, 2, 3]
    assert not any(control.state == "asked" for control in store.controls(run_id))


def test_the_clock_of_a_paused_run_goes_on_where_the_store_is_away_for_a_moment(held, monkeypatch):
    within, failed = Steering.within_step, []

    def away(steering, *args):
        if failed == ["asked"]:
            failed.append("away")
            raise LabError("The store is away.")
        return within(steering, *args)
    monkeypatch.setattr(Steering, "within_step", away)

    def resume(store, run_id):
        failed.append("asked")
        until(lambda: "away" in failed, every=0.001)
        store.ask(run_id, "resume")
    state, _, store, run_id = held(resume)
    assert state == "finished" and failed == ["asked", "away"]
    rows = store.steps_after(run_id)
    assert 0.3 < rows[2].seconds - rows[1].seconds < 3.0, "the rest of the step counts"


def test_a_paused_base_hears_the_stop_of_the_run_that_waits_for_it(held, monkeypatch):
    told = threading.Event()
    monkeypatch.setattr(_Drive, "_is_to_stop", lambda _: told.is_set())
    state, seconds, *_ = held(lambda store, run_id: told.set())
    assert state == "stopped" and seconds < 5.0
