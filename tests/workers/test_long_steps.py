"""A step that takes long is not waited for: it is dropped, and the run can be resumed from the one before."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from labcore.spec.activity import report
from labcore.store.store import Store
from labcore.workers import lifeline, stop_watch
from labcore.workers.worker import drive
from tests.runs import fake


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
    monkeypatch.setattr(stop_watch, "LOOK_SECONDS", 0.05)
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
def test_a_run_ends_within_a_long_step_and_goes_on_from_the_last_whole_one(state, ask):
    store = Store()
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


def test_short_steps_are_whole():
    """What ends by itself is not dropped: the checkpoint is that of the last step."""
    store = Store()
    run_id = store.create(fake.grpo(500))

    def cut(_run, record, _seconds):
        if record.step == 7:
            os.kill(os.getpid(), signal.SIGTERM)
    assert drive(store, run_id, start=fake.start, on_record=cut) == "interrupted"
    assert store.run(run_id).step == 7 and "at step 7" in store.run(run_id).message


def test_a_run_that_early_stopping_stops_within_a_step_keeps_its_reason_and_a_knob_that_was_moved():
    store = Store()
    run_id = store.create(fake.grpo(5))

    def ask():
        store.ask(run_id, "set", {"knob": "beta", "value": 0.3})
        store.ask(run_id, "stop", {"why": "Stopped early at step 2."})
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
