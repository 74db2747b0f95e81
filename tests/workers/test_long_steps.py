"""A step that takes long is not waited for: it is dropped, and the run can be resumed from the one before."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

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
