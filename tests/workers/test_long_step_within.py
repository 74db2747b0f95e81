"""Stop and pause in the middle of a step of a real session, at whichever place that it reports: nothing is lost."""

import re
import threading

import pytest

from labcore.catalog.llm.models import MODELS
from labcore.runs.files import checkpoints
from labcore.runs.files.paths import run_folder
from labcore.runs.spec import activity
from labcore.runs.spec.run_spec import make
from labcore.runs.store.store import Store
from labcore.workers import long_step, training
from labcore.workers.worker import drive
from tests.every import now
from tests.llm.tools import TINIER
from tests.workers.tools import learnt, until

STEPS = 3
SMALL = {"sft_steps": 0, "max_new_tokens": 4}
ONLINE = SMALL | {"prompts_per_step": 2, "group_size": 2}
PAIRED = {"pairs_per_step": 2, "eval_every": 2, "eval_prompts": 2, "pair_prompts": 16, "group_size": 4}
RUNS = {
    "grpo": {"algorithm_key": "grpo", "knobs": ONLINE},
    "ppo": {"algorithm_key": "ppo", "knobs": ONLINE | {"updates_per_batch": 2, "mini_batches": 2}},
    "dpo": {"algorithm_key": "dpo", "knobs": PAIRED},
    "dpo each step": {"algorithm_key": "dpo", "knobs": PAIRED | {"pairs": "policy_each_step"}},
    "reward model": {"algorithm_key": "reward_model", "knobs": {
        "pairs_per_step": 2, "eval_every": 2, "eval_pairs": 8, "pair_prompts": 32, "group_size": 4}},
    "sft": {"algorithm_key": "sft", "knobs": {"sequences_per_step": 2, "eval_every": 2, "eval_prompts": 2,
                                              "max_new_tokens": 4}},
}


@pytest.fixture(autouse=True)
def every_report(monkeypatch):
    """A tiny model, whose progress reports all count as those of a long step. No checkpoint falls due."""
    monkeypatch.setitem(MODELS, "tiny", TINIER)
    monkeypatch.setattr(long_step, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(activity, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(training, "LOSABLE_SECONDS", 0.0)
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 1e9)
    monkeypatch.setattr(training, "CHECKPOINT_STEPS", 1000)


def run_of(name):
    return make(task_key="sort", steps=STEPS, **RUNS[name])


@pytest.fixture(scope="module")
def whole():
    """By the name of a run: what it learns where nobody asks anything of it, and all that it reports."""
    found: dict[str, tuple[list, list[tuple[int, str]]]] = {}

    def of(name):
        if name not in found:
            store, said = Store(), []
            run_id = store.create(run_of(name))
            assert drive(store, run_id, on_activity=lambda _run, step, text: said.append((step, text))) == "finished"
            found[name] = learnt(store, run_id), [each for each in said if each[0]]
        return found[name]
    return of


def places(said, step):
    """Two reports of different kinds within a step, the first and one in its second half; numbers make no kind."""
    kinds = {re.sub(r"\d+", "#", text): place for place, (at, text) in enumerate(said) if at == step}
    found = sorted(kinds.values())
    return sorted({found[0], found[2 * len(found) // 3]})


def asking(store, run_id, at, command):
    """What asks `command` of the run at its report number `at`, once."""
    heard = [0]

    def on_activity(_run, step, _text):
        if step:
            if heard[0] == at:
                store.ask(run_id, command)
            heard[0] += 1
    return on_activity


@pytest.mark.parametrize("name", now(RUNS, "ppo"))
def test_a_run_that_is_stopped_at_any_place_keeps_all_whole_steps(name, whole):
    """At one of its places, the first or the last of the two; the other is that of another run."""
    numbers, said = whole(name)
    assert any("sampling" in text or "update" in text for _, text in said)
    store = Store()
    at = places(said, 2)[-(list(RUNS).index(name) % 2)]
    run_id = store.create(run_of(name))
    assert drive(store, run_id, on_activity=asking(store, run_id, at, "stop")) == "stopped"
    made = [step.step for step in store.steps_after(run_id)]
    saved, _ = checkpoints.newest(run_folder(run_id))
    assert saved == made[-1] and made in ([1], [1, 2]), said[at]
    store.requeue(run_id)
    assert drive(store, run_id) == "finished"
    assert learnt(store, run_id) == numbers, said[at]


@pytest.mark.parametrize("name", now(RUNS, "ppo"))
def test_a_run_that_is_paused_at_any_place_waits_there_and_learns_the_same(name, whole):
    numbers, said = whole(name)
    at = places(said, 2)[-1]
    store = Store()
    run_id = store.create(run_of(name))
    found = []

    def resume():
        until(lambda: store.run(run_id).message.startswith("in step"))
        found.append(store.run(run_id))
        store.ask(run_id, "resume")
    thread = threading.Thread(target=resume)
    thread.start()
    assert drive(store, run_id, on_activity=asking(store, run_id, at, "pause")) == "finished"
    thread.join()
    assert found[0].state == "paused" and found[0].message.startswith("in step 2: ")
    assert learnt(store, run_id) == numbers, said[at]


def test_while_it_waits_within_a_step_the_last_whole_one_is_saved(store):
    """A paused run can be forked, and is lost by no power cut."""
    run_id = store.create(run_of("grpo"))
    found = []

    def resume():
        until(lambda: store.run(run_id).message.startswith("in step"))
        found.extend(at for at, _ in checkpoints.steps(run_folder(run_id)))
        store.ask(run_id, "step")
        until(lambda: "stepped" in [each.kind for each in store.events_after(run_id)])
        found.append(store.run(run_id).state)
        store.ask(run_id, "resume")
    thread = threading.Thread(target=resume)
    thread.start()
    seen = [0]

    def ask(_run, step, text):
        if step == 2 and "sampling" in text and not seen[0]:
            seen[0] = store.ask(run_id, "pause")
    assert drive(store, run_id, on_activity=ask) == "finished"
    thread.join()
    assert found[:-1] == [0, 1] and found[-1] == "paused"  # one step was made, then it waited again
