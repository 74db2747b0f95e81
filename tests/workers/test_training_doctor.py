"""What the doctor says while a run goes: real short runs that go wrong, and what is left in the store."""

from math import nan

import pytest

from labcore.analysis.doctor.doctor import course, holding, said
from labcore.errors import Diverged
from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import Record
from labcore.runs.store.store import Store
from labcore.workers.worker import drive
from tests.runs import fake
from tests.words import says

SMALL = {"prompts_per_step": 8, "group_size": 8}
FLAT = {"reward": 0.2, "reward_std": 0.4, "frac_reward_zero_std": 0.1}


def verdicts(store: Store, run_id: str) -> set[str]:
    return {change.rule for change in said(store.events_after(run_id)) if change.finding}


@pytest.mark.parametrize(("steps", "knobs", "rules"), [
    pytest.param(25, {"updates_per_batch": 1, "max_new_tokens": 2}, {"no_signal", "clip_cannot_act", "truncation"},
                 marks=pytest.mark.long),
    (15, {"learning_rate": 0.02}, {"step_too_big", "kl_runaway"}),
])
def test_a_real_run_that_goes_wrong_is_told_so_by_its_events(steps, knobs, rules, store):
    run_id = store.create(make(algorithm_key="grpo", task_key="sort", steps=steps, knobs=SMALL | knobs))
    assert drive(store, run_id) == "finished"
    assert rules <= verdicts(store, run_id)
    events = store.events_after(run_id)
    _, changes = course(store.run(run_id).spec, store.steps_after(run_id), events)
    assert said(events) == changes  # the command line says of the rows what the worker said


class Ill(fake.FakeSession):
    """Its groups agree up to step 40, and no longer; at step 25 somebody stops it."""

    def run(self):
        for record in super().run():
            if record:
                metrics = FLAT | ({"frac_reward_zero_std": 0.9} if record.step <= 40 else {})
                yield Record(record.step, record.tokens, metrics)


def test_a_verdict_is_logged_once_with_its_end_though_the_run_is_resumed(store):
    run_id = store.create(fake.grpo(100))

    def stop(_run, record, _seconds):
        if record.step == 25:
            store.ask(run_id, "stop")

    assert drive(store, run_id, start=Ill.start, on_record=stop) == "stopped"
    [begun] = said(store.events_after(run_id))
    assert (begun.rule, begun.step, begun.finding.value) == ("zero_variance", 15, 16)
    store.requeue(run_id)
    assert drive(store, run_id, start=Ill.start) == "finished"
    assert [(change.step > 40, change.finding is None) for change in said(store.events_after(run_id))] == [
        (False, False), (True, True)]


class Breaks(fake.FakeSession):
    """Its loss is NaN at step 12: the loop raises it, or the record has it."""

    raises = False

    def run(self):
        for record in super().run():
            if record and record.step == 12 and not self.knobs.get("beta"):
                if self.raises:
                    raise Diverged(12, "loss")
                record = Record(12, record.tokens, FLAT | {"loss": nan})
            yield record


@pytest.mark.parametrize("raises", [False, True])
def test_a_loss_that_is_not_finite_is_a_finding_until_the_run_is_resumed(raises, monkeypatch):
    monkeypatch.setattr(Breaks, "raises", raises)
    store = Store()
    run_id = store.create(fake.grpo(30, beta=0.0))
    assert drive(store, run_id, start=Breaks.start) == "diverged"
    [(since, finding)] = holding(store.events_after(run_id))
    assert (since, finding.began, finding.severity, finding.knob) == (12, 12, "problem", "learning_rate")
    assert says(finding.text, "not finite", "loss", "step 12")
    assert says(finding.fix, "Resume", "last good checkpoint", "lower learning rate")
    store.requeue(run_id)
    store.ask(run_id, "set", {"knob": "beta", "value": 0.04})
    assert drive(store, run_id, start=Breaks.start) == "finished"
    assert holding(store.events_after(run_id)) == []


def test_a_run_of_an_older_lab_is_told_what_holds_when_it_is_resumed(monkeypatch, store):
    run_id = store.create(fake.grpo(30))

    def stop(_run, record, _seconds):
        if record.step == 25:
            store.ask(run_id, "stop")

    with monkeypatch.context() as older:
        older.setattr("labcore.analysis.doctor.doctor.RULES", ())
        drive(store, run_id, start=Ill.start, on_record=stop)
    assert said(store.events_after(run_id)) == []
    store.requeue(run_id)
    assert drive(store, run_id, start=Ill.start) == "finished"
    assert [(change.rule, change.step) for change in said(store.events_after(run_id))] == [("zero_variance", 25)]
