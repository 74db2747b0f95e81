"""What a step leaves: numbers that are not finite, notes of the engine, and pictures of the steps to look at."""

import json
from dataclasses import replace

from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import run_folder
from labcore.workers.pictures import finite
from labcore.workers.worker import drive
from tests.runs import fake


class Breaking(fake.FakeSession):
    """Its reward at step 6 and its picture at step 5 are not numbers."""

    def run(self):
        for record in super().run():
            if record and record.step == 5:
                record = replace(record, samples={"step": 5, "entropy": [0.5, float("inf")]})
            if record and record.step == 6:
                record = replace(record, metrics=record.metrics | {"reward": float("nan")})
            yield record


def test_a_metric_that_is_no_number_is_a_diverged_run_with_all_steps_before_it(store):
    run_id = store.create(fake.grpo(10))
    assert drive(store, run_id, start=Breaking.start) == "diverged"
    assert "reward" in store.run(run_id).message and "step 6" in store.run(run_id).message
    assert [step.step for step in store.steps_after(run_id)] == [1, 2, 3, 4, 5]
    assert checkpoint.newest(run_folder(run_id))[0] == 0
    picture = (run_folder(run_id) / "samples" / "step-000005.json").read_text()
    assert json.loads(picture) == {"step": 5, "entropy": [0.5, None]}


class Short(fake.FakeSession):
    """Memory is short at step 2."""

    def run(self):
        for record in super().run():
            yield replace(record, notes=("Micro-batches halved.",)) if record and record.step == 2 else record


def test_what_the_engine_notes_of_a_step_is_an_event_of_it(store):
    run_id = store.create(fake.grpo(3))
    assert drive(store, run_id, start=Short.start) == "finished"
    assert [(event.step, event.payload) for event in store.events_after(run_id) if event.kind == "note"] == [
        (2, {"text": "Micro-batches halved."})]


class Dying(Short):
    """Its process dies at step 3, before there is a checkpoint of step 2."""

    def run(self):
        for record in super().run():
            if record and record.step == 3:
                raise KeyboardInterrupt
            yield record


def test_a_step_that_is_made_again_has_its_notes_once(store):
    run_id = store.create(fake.grpo(3))
    drive(store, run_id, start=Dying.start)
    store.requeue(run_id)
    assert checkpoint.newest(run_folder(run_id))[0] == 0 and drive(store, run_id, start=Short.start) == "finished"
    assert [event.step for event in store.events_after(run_id) if event.kind == "note"] == [2]


class Seen(fake.FakeSession):
    """Whoever looks at a step gets its number."""

    def run(self):
        for record in super().run():
            yield replace(record, look=lambda step=record.step: ({"step": step}, None)) if record else record


def test_the_steps_after_a_turned_knob_can_all_be_looked_at(store):
    run_id = store.create(fake.grpo(12))

    def turn(_run, record, _seconds):
        if record.step == 5:
            store.ask(run_id, "set", {"knob": "beta", "value": 0.5})

    assert drive(store, run_id, start=Seen.start, on_record=turn) == "finished"
    pictures = [json.loads(path.read_text())["step"] for path in sorted((run_folder(run_id) / "samples").iterdir())]
    assert pictures == [5, 6, 7, 8, 10, 12]  # those that were due, and the last one


def test_finite_keeps_everything_else():
    content = {"a": [1, 2.5, None, "nan", True], "b": {"c": float("-inf")}}
    assert finite(content) == {"a": [1, 2.5, None, "nan", True], "b": {"c": None}}
