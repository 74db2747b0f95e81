"""Runs driven in the test's own process, or beside it, and what they left behind."""

import sys
import threading
import time

from labcore.catalog.metrics import METRICS
from labcore.workers.worker import drive
from tests.runs import fake

# The command of a supervisor for mazes, without torch, which takes seconds to load, and without garbage collection,
# which would only scan the modules that it loads.
LIGHT = (sys.executable, "-c", "import gc; gc.disable(); from labcore.workers import supervisor; "
         "supervisor.main(preload=('labcore.classic.tabular.session',), fork=True)")


def run(store, run_id, at=None) -> str:
    """Drive a run in this process; `at` maps steps to what is done when that step is committed."""
    at = dict(at or {})

    def on_record(who, record, _seconds):
        if who == run_id and record.step in at:
            at.pop(record.step)()

    return drive(store, run_id, on_record=on_record, start=fake.start)


def asker(store, run_id, *commands):
    """A function that asks for `commands`: names, or (knob, value) pairs."""
    def ask():
        for command in commands:
            if isinstance(command, tuple):
                store.ask(run_id, "set", {"knob": command[0], "value": command[1]})
            else:
                store.ask(run_id, command)
    return ask


def kinds(store, run_id) -> list[str]:
    return [event.kind for event in store.events_after(run_id) if event.kind != "checkpoint"]


def knob_events(store, run_id) -> list[tuple[int, str]]:
    return [(e.step, e.payload["text"]) for e in store.events_after(run_id) if e.kind == "knob"]


def learnt(store, run_id) -> list[dict[str, float]]:
    """What the steps of a run measured of its training: nothing of the machine."""
    return [{key: value for key, value in step.metrics.items() if METRICS[key].about == "training"}
            for step in store.steps_after(run_id)]


class Background(threading.Thread):
    """Drives a run beside the test."""

    def __init__(self, store, run_id):
        super().__init__(daemon=True)
        self.store, self.run_id, self.state = store, run_id, None
        self.start()

    def run(self):
        self.state = drive(self.store, self.run_id, start=fake.start)


def until(condition, seconds: float = 90.0, every: float = 0.005):
    """Wait for a condition; its value. It is looked at `every` so many seconds, and less and less often as the wait
    gets longer, down to every 30 ms: a look at the store keeps a core from the process that is waited for."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(every)
        every = max(every, min(1.1 * every, 0.03))
    return value
