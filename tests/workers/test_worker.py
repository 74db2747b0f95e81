"""The worker: a run goes to its end, and one that was stopped or forked goes on from its checkpoint."""

import json

import pytest

from labcore.errors import Diverged, LabError
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import run_folder
from labcore.runs.spec.run_spec import make
from tests.runs import fake
from tests.workers.tools import asker, kinds, knob_events, run


def test_a_run_goes_to_its_end_and_leaves_everything(store):
    run_id = store.create(fake.grpo(120))
    assert run(store, run_id) == "finished"
    row, folder = store.run(run_id), run_folder(run_id)
    assert (row.state, row.message, row.step, row.pid) == ("finished", "all 120 steps done", 120, None)
    assert [s.step for s in store.steps_after(run_id)] == list(range(1, 121))
    assert kinds(store, run_id) == ["queued", "started", "finished"]
    assert [e.step for e in store.events_after(run_id) if e.kind == "checkpoint"] == [0, 50, 100, 120]
    assert [step for step, _ in checkpoint.steps(folder)] == [0, 50, 100, 120]
    assert json.loads((folder / "samples" / "step-000005.json").read_text())["step"] == 5
    assert json.loads((folder / "lines" / "step-000020.json").read_text()) == {"step": 20}
    assert json.loads((folder / "spec.json").read_text())["algorithm"] == "grpo"
    last = store.steps_after(run_id, 119)[0]
    assert last.metrics["memory"] > 1 and last.metrics["tokens_per_second"] > 0


def test_equal_specs_learn_equal_things(store):
    ids = [store.create(fake.grpo(20)) for _ in range(2)]
    for run_id in ids:
        run(store, run_id)
    assert fake.trained(store, ids[0]) == fake.trained(store, ids[1])


def test_a_run_is_driven_by_one_process_only(store):
    run_id = store.create(fake.grpo(3))
    store.claim(run_id, pid=1)
    with pytest.raises(LabError, match="only a queued run can be started"):
        run(store, run_id)


# ---------------------------------------------------------------- resume


def test_a_stopped_run_goes_on_bit_for_bit(store):
    whole, parts = store.create(fake.grpo(30)), store.create(fake.grpo(30))
    run(store, whole, {12: asker(store, whole, ("beta", 0.2))})
    assert run(store, parts, {12: asker(store, parts, ("beta", 0.2)), 17: asker(store, parts, "stop")}) == "stopped"
    store.requeue(parts)
    assert run(store, parts) == "finished"
    assert fake.trained(store, parts) == fake.trained(store, whole)
    seconds = [s.seconds for s in store.steps_after(parts)]
    assert seconds == sorted(seconds)
    assert [e.payload for e in store.events_after(parts) if e.kind == "resumed"] == [{"from": 17}]


def test_resuming_with_another_knob_applies_it_at_the_checkpoint(store, breaking):
    run_id = store.create(fake.grpo(10))
    breaking(7, Diverged(7, "policy loss"))
    assert run(store, run_id) == "diverged"
    assert "at step 7" in store.run(run_id).message and store.run(run_id).step == 6
    assert checkpoint.newest(run_folder(run_id))[0] == 0
    breaking(99, RuntimeError())
    store.requeue(run_id, {"learning_rate": 1e-5})
    assert run(store, run_id) == "finished"
    assert knob_events(store, run_id) == [(1, "η 0.001 → 1e-05")]
    assert [s.step for s in store.steps_after(run_id)] == list(range(1, 11))


def test_a_fork_starts_from_its_parents_checkpoint_with_knobs_of_its_own(store):
    parent = store.create(fake.grpo(20))
    run(store, parent)
    knobs = {"sft_steps": 0, "beta": 0.7}
    child = store.create(make(algorithm_key="grpo", task_key="sort", steps=25, knobs=knobs, parent=(parent, 20)))
    assert run(store, child) == "finished"
    assert [s.step for s in store.steps_after(child)] == [21, 22, 23, 24, 25]
    orphan = store.create(make(algorithm_key="grpo", task_key="sort", steps=25, knobs=knobs, parent=(parent, 3)))
    assert run(store, orphan) == "failed" and "no checkpoint of step 3" in store.run(orphan).message
