"""A run that goes on in another home ends bit for bit as it would have."""

import os
import signal

import pytest

from labcore.catalog.llm.models import MODELS
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.artifacts import deletion, fetch, manifest, object_store
from labcore.runs.files.paths import run_folder
from labcore.runs.spec import model_names
from labcore.runs.spec.run_spec import make
from labcore.workers.worker import drive
from tests.llm.tools import TINIER
from tests.runs import fake
from tests.runs.files.artifacts.tools import killed_before_write
from tests.workers.tools import kinds, learnt, run
from tests.workers.two_homes.tools import STEPS, interrupt, published, whole


def test_a_run_that_was_interrupted_ends_in_another_home_bit_for_bit(machines, store):
    undisturbed = whole(store, fake.grpo(STEPS))
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id, {57: interrupt}) == "interrupted"
    machines.at("b")
    store.requeue(run_id, mine=True)
    assert run(store, run_id) == "finished"
    assert fake.trained(store, run_id) == undisturbed
    assert kinds(store, run_id)[-2:] == ["resumed", "finished"] and published(store, run_id) == []
    b = [step for step, _ in checkpoint.local(run_folder(run_id))]
    assert b == [50, 60] and [step for step, _ in checkpoint.steps(run_folder(run_id))] == [0, 50, 60]
    samples = sorted(path.name for path in (run_folder(run_id) / "samples").iterdir())
    assert samples == sorted(fetch.names(run_id, "samples")) and "step-000005.json" in samples
    machines.at("a")  # which has it from before, and less of it
    assert checkpoint.newest(run_folder(run_id)) == (60, run_folder(run_id) / "checkpoints" / "step-000060")


@pytest.mark.long
def test_a_language_model_goes_on_in_another_home_bit_for_bit(machines, store, monkeypatch):
    """A real one with an adapter on a run's policy, which only the store has by then."""
    monkeypatch.setitem(MODELS, "tiny", TINIER)
    knobs = {"sft_steps": 0, "prompts_per_step": 2, "group_size": 2, "reward_source": "noisy_verifier",
             "reward_noise": 0.3}  # without noise, random weights would earn nothing
    given = {"algorithm_key": "grpo", "task_key": "sort", "steps": 4}
    first = store.create(make(**given, knobs=knobs), mine=True)
    assert drive(store, first) == "finished", store.run(first).message
    spec = make(**given, model=model_names.model_of_name(first), knobs=knobs | {"lora_rank": 2})
    undisturbed, run_id = (store.create(spec, mine=True) for _ in range(2))
    assert drive(store, undisturbed) == "finished", store.run(undisturbed).message
    stop = {2: lambda: store.ask(run_id, "stop")}
    assert drive(store, run_id, on_record=lambda who, record, _: stop.pop(record.step, int)()) == "stopped"
    machines.at("b")
    store.requeue(run_id, mine=True)
    assert drive(store, run_id) == "finished", store.run(run_id).message
    assert learnt(store, run_id) == learnt(store, undisturbed) and len(learnt(store, run_id)) == 4
    assert any(step["grad_norm"] > 0 for step in learnt(store, run_id))
    assert [step for step, _ in checkpoint.local(run_folder(first))] == [4]


def test_a_run_begins_where_the_store_is_away_but_is_not_resumed_from_nothing(machines, store):
    run_id = store.create(fake.grpo(STEPS), mine=True)
    machines.unplug()
    assert run(store, run_id, {57: interrupt}) == "interrupted"  # all of it was made without the store
    store.requeue(run_id, mine=True)
    assert run(store, run_id, {58: interrupt}) == "interrupted"
    machines.at("b")
    store.requeue(run_id, mine=True)
    assert run(store, run_id) == "failed"
    message = store.run(run_id).message
    assert "There is no folder" in message and store.run(run_id).step == 58


@pytest.mark.parametrize("nth", [3, 8, *(pytest.param(nth, marks=pytest.mark.long) for nth in (1, 5, 11))])
def test_a_worker_killed_while_it_publishes_is_resumed_elsewhere_bit_for_bit(machines, store, nth):
    undisturbed = whole(store, fake.grpo(STEPS))
    run_id = store.create(fake.grpo(STEPS))
    store.dispose()
    pid = os.fork()
    if pid == 0:
        killed_before_write(nth)
        object_store._opened.cache_clear()
        run(store, run_id)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    assert store.reconcile() == [run_id]
    machines.at("b")
    store.requeue(run_id, mine=True)
    assert run(store, run_id) == "finished"
    assert fake.trained(store, run_id) == undisturbed


def test_a_damaged_checkpoint_is_not_resumed_from(machines, store):
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id, {57: interrupt}) == "interrupted"
    for path in (machines.shared / run_id / "checkpoints" / "step-000050").iterdir():
        if path.name != manifest.NAME:
            path.write_bytes(path.read_bytes()[1:])
    machines.at("b")
    store.requeue(run_id, mine=True)
    assert run(store, run_id) == "failed"
    assert "step-000050 in file://" in store.run(run_id).message and "is damaged" in store.run(run_id).message
    assert checkpoint.local(run_folder(run_id)) == []
    machines.at("a")  # which still has it
    store.requeue(run_id, mine=True)
    assert run(store, run_id) == "finished"


@pytest.mark.parametrize("home", ["a", "b"])
def test_a_damaged_list_of_pictures_or_notes_does_not_stop_a_resume(machines, store, home):
    """Neither on the machine that has the files, which mends the lists, nor on another one."""
    undisturbed, run_id = whole(store, fake.grpo(STEPS)), store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id, {57: interrupt}) == "interrupted"
    for name in ("run", "samples", "lines"):
        (machines.shared / run_id / name / manifest.NAME).write_text("{")
    machines.at(home)
    store.requeue(run_id, mine=True)
    assert run(store, run_id) == "finished", store.run(run_id).message
    assert fake.trained(store, run_id) == undisturbed
    assert len(fetch.names(run_id, "samples")) == (STEPS // 5 if home == "a" else 2)
    assert published(store, run_id) == []


def test_a_checkpoint_beyond_the_last_row_is_not_taken_up_again_from_the_store(machines, store, monkeypatch):
    """Also where the answers of the store are kept as long as usual, and it cannot delete the checkpoint just now."""
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id, {57: interrupt}) == "interrupted"
    machines.at("b")
    monkeypatch.setattr(fetch, "FRESH_SECONDS", 60)
    fetch.forget_answers()
    assert checkpoint.newest_step(run_folder(run_id)) == 50
    monkeypatch.setattr(deletion, "clear", lambda store: [])
    checkpoint.forget_after(run_folder(run_id), 40)
    assert checkpoint.newest_step(run_folder(run_id)) == 0
