"""Forks: the same again where nothing differs, exactly from the parent's state where something does."""

import json
import shutil

import pytest

from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.catalog.llm.models import MODELS
from labcore.catalog.metrics import METRICS
from labcore.errors import LabError
from labcore.runs import fork
from labcore.runs.files import checkpoints
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import START, run_folder
from labcore.runs.fork import Branch, fork_spec, lineage
from labcore.runs.spec.run_spec import RunSpec, make
from labcore.runs.store.schema import runs
from labcore.workers import training
from labcore.workers.worker import drive
from tests.every import now
from tests.llm.tools import TINIER
from tests.runs import fake
from tests.words import saying, says

LLM = {"sft_steps": 3, "prompts_per_step": 4, "group_size": 4}
POLE = {"hidden": 8, "eval_episodes": 1, "environments": 4, "rollout_steps": 8, "epochs": 2, "mini_batches": 2}
TINY = MODELS["tiny"]
STEP = {"prompts_per_step": 4, "group_size": 4, "sequences_per_step": 8, "pairs_per_step": 8, "pair_prompts": 16,
        "eval_prompts": 4, "environments": 4, "rollout_steps": 8, "eval_episodes": 1}  # where an algorithm has such
KINDS = {"llm": ("grpo", "sort", LLM), "maze": ("q_learning", "slippery", {"pace": 0}),
         "exact": ("rloo", "sorted", {"prompts_per_step": 4, "group_size": 4}),
         "cartpole": ("ppo", "CartPole-v1", POLE)}


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """A checkpoint at every fourth step, of a model that is quick."""
    monkeypatch.setitem(MODELS, "tiny", TINIER)
    monkeypatch.setattr(training, "CHECKPOINT_STEPS", 4)
    monkeypatch.setattr(training, "CHECKPOINT_SHARE", 0)


def spec_of(kind: str, steps: int = 10, algorithm: str = "", **knobs) -> RunSpec:
    usual, task, given = KINDS[kind]
    return make(kind=kind, algorithm_key=algorithm or usual, task_key=task, steps=steps, seed=3,
                knobs=given | knobs if algorithm in ("", usual) else knobs)


def done(store, spec, **given) -> str:
    """The id of a run of `spec` that was taken to its end."""
    run_id = store.create(spec)
    assert drive(store, run_id, **given) == "finished", store.run(run_id).message
    return run_id


def faked(store, spec, at=None) -> str:
    """The same with a session without a model; `at` maps steps to what is asked when they are committed."""
    run_id = store.create(spec)

    def on_record(_run, record, _seconds):
        for key, value in (at or {}).get(record.step, {}).items():
            store.ask(run_id, "set", {"knob": key, "value": value})

    assert drive(store, run_id, on_record=on_record, start=fake.start) == "finished", store.run(run_id).message
    return run_id


def learnt(store, run_id, after: int = 0) -> list[tuple]:
    """All that a run learnt beyond a step; speed and memory left out."""
    return [(s.step, s.tokens, s.env_steps, {k: v for k, v in s.metrics.items() if METRICS[k].about == "training"})
            for s in store.steps_after(run_id, after)]


# ---------------------------------------------------------------- real sessions


@pytest.mark.parametrize("kind", now(KINDS, "llm", "maze"))
def test_with_the_same_knobs_and_random_numbers_it_is_its_parent_bit_for_bit(store, monkeypatch, kind):
    monkeypatch.setattr(training, "CHECKPOINT_STEPS", 2)
    parent = done(store, spec_of(kind, 5))
    child = done(store, fork_spec(store, parent, 2))
    assert learnt(store, child) == learnt(store, parent, 2) and store.run(child).step == 5
    grandchild = done(store, fork_spec(store, child, 4))
    assert learnt(store, grandchild) == learnt(store, parent, 4)
    fresh = done(store, fork_spec(store, parent, 2, twin=False))
    assert learnt(store, fresh) != learnt(store, child) and len(learnt(store, fresh)) == 3
    assert store.run(fresh).spec.seed == 4 and store.run(child).spec.seed == 3
    [began] = [event for event in store.events_after(child) if event.kind == "forked"]
    assert (began.step, began.payload) == (0, {"run": parent, "from": 2})


@pytest.mark.parametrize("kind", now(KINDS, "llm", "maze"))
def test_a_fork_that_is_stopped_goes_on_bit_for_bit_without_its_parent(store, kind):
    parent = done(store, spec_of(kind, 2))
    whole = done(store, fork_spec(store, parent, twin=False, seed=9, steps=5))
    parts = store.create(fork_spec(store, parent, twin=False, seed=9, steps=5))
    state = drive(store, parts, on_record=lambda run, record, _: record.step == 3 and store.ask(run, "stop"))
    assert state == "stopped" and not (run_folder(parts) / START).exists()
    store.delete(parent)
    shutil.rmtree(run_folder(parent).parent / "base", ignore_errors=True)
    store.requeue(parts)
    assert drive(store, parts) == "finished"
    assert learnt(store, parts) == learnt(store, whole)


@pytest.mark.parametrize("kind, same, other", [("llm", ("kl", "entropy", "loss", "grad_norm"), "learning_rate"),
                                               ("cartpole", ("td_error", "explained_variance"), "policy_loss")])
def test_the_first_step_of_a_fork_begins_where_its_parent_was(store, kind, same, other):
    """What was sampled in it and seen in that is the parent's, what was learnt from it is not."""
    parent = done(store, spec_of(kind, 6))
    child = done(store, fork_spec(store, parent, 4, knobs={"learning_rate": 1e-5}))
    (ours, *later), (theirs, *_) = learnt(store, child), learnt(store, parent, 4)
    assert ours[:3] == theirs[:3]
    assert {key: ours[3].get(key) for key in same} == {key: theirs[3].get(key) for key in same}
    assert ours[3][other] != theirs[3][other] and later != learnt(store, parent, 5)


@pytest.mark.parametrize("kind, before, after", [
    ("llm", "grpo", "ppo"), *(pytest.param("llm", *pair, marks=pytest.mark.long)
                              for pair in (("ppo", "rloo"), ("sft", "grpo"))),
    *(pytest.param("llm", *pair, marks=pytest.mark.long) for pair in (("rloo", "dpo"), ("dpo", "sft"))),
    ("maze", "q_learning", "double_q_learning"), ("maze", "value_iteration", "ppo"),
    ("maze", "actor_critic", "value_iteration"), ("cartpole", "ppo", "a2c"),
    *(pytest.param("maze", *pair, marks=pytest.mark.long) for pair in (
        ("double_q_learning", "sarsa_lambda"), ("value_iteration", "policy_iteration"), ("reinforce", "ppo"))),
    *(pytest.param("cartpole", *pair, marks=pytest.mark.long) for pair in (("a2c", "trpo"), ("trpo", "reinforce")))])
def test_another_algorithm_goes_on_from_there(store, monkeypatch, kind, before, after):
    if "dpo" in (before, after):
        monkeypatch.setitem(MODELS, "tiny", TINY)  # the base of the lab knows enough to have pairs
    taught = {} if "dpo" in (before, after) else {"sft_steps": 0, "letters": 2}
    small = {"llm": taught, "maze": {"pace": 0}, "cartpole": {"hidden": 8}}[kind] | STEP
    usual = spec_of(kind, algorithm=before).knobs
    parent = done(store, spec_of(kind, 4, before, **{key: value for key, value in small.items() if key in usual}))
    new = {key: value for key, value in STEP.items() if key in spec_of(kind, algorithm=after).knobs}
    spec = fork_spec(store, parent, algorithm=after, knobs=new, steps=6)
    assert spec.algorithm == after and spec.parent == (parent, 4)
    child = done(store, spec)
    assert [row[0] for row in learnt(store, child)] == [5, 6]
    more = done(store, fork_spec(store, child, 6, steps=7))  # its own checkpoint holds all that it needs
    assert [row[0] for row in learnt(store, more)] == [7]


def test_a_table_is_taken_over_by_another_method(store):
    """With a step size of 0 nothing is learnt: what the child knows is what the parent knew."""
    parent = done(store, spec_of("maze"))
    before = store.steps_after(parent, 9)[0].metrics
    assert before["q_error"] != pytest.approx(store.steps_after(parent)[0].metrics["q_error"])
    child = done(store, fork_spec(store, parent, algorithm="double_q_learning", knobs={"alpha": 0}, steps=11))
    assert store.steps_after(child)[0].metrics["q_error"] == before["q_error"]


def test_a_policy_and_its_reference_are_taken_over(store):
    """SFT has no reference, so that of the fork is what SFT had come to: the first KL is 0, and later it is not."""
    parent = done(store, spec_of("llm", 4, "sft", sft_target=1.0))
    child = done(store, fork_spec(store, parent, algorithm="grpo", steps=7,
                                  knobs=LLM | {"sft_steps": 0, "entropy_coef": 0.5}))  # it moves whatever it earns
    kl = [step.metrics["kl"] for step in store.steps_after(child)]
    assert kl[0] == pytest.approx(0, abs=1e-9) and kl[2] > 1e-7
    again = done(store, fork_spec(store, child, 7, algorithm="rloo", steps=8))
    assert store.steps_after(again)[0].metrics["kl"] > kl[2] / 10  # still measured from where SFT had come to


# ---------------------------------------------------------------- the spec of a fork


def test_its_knobs_are_the_parents_at_that_step(store):
    parent = faked(store, fake.grpo(20), {6: {"beta": 0.2, "group_size": 4}, 10: {"beta": 0.5}})
    assert [e.step for e in store.events_after(parent) if e.kind == "knob"] == [7, 7, 11]
    there = {6: (0.04, 8), 10: (0.2, 4), 14: (0.5, 4), 20: (0.5, 4)}
    for step, expected in there.items():
        knobs = fork_spec(store, parent, step).knobs
        assert (knobs["beta"], knobs["group_size"]) == expected, step
    spec = fork_spec(store, parent, 10, knobs={"beta": "0.3"})
    assert (spec.knobs["beta"], spec.knobs["group_size"], spec.steps) == (0.3, 4, 20)
    assert RunSpec.from_json(spec.to_json()) == spec


def test_what_if_the_knob_had_not_been_touched(store):
    """There is a checkpoint right before each change, and at the marker itself where it fell into a step."""
    plain = faked(store, fake.grpo(20))
    parent = faked(store, fake.grpo(20), {5: {"beta": 0.9}})
    [marker] = [e.step for e in store.events_after(parent) if e.kind == "knob"]
    assert marker == 6 and marker - 1 in fork.steps_to_fork(parent)
    child = faked(store, fork_spec(store, parent, marker - 1))
    assert fake.trained(store, child) == fake.trained(store, plain)[5:] != fake.trained(store, parent)[5:]


def test_a_change_within_a_step_is_forked_from_the_end_of_that_step(store, monkeypatch):
    monkeypatch.setattr(training, "CHECKPOINT_STEPS", 1000)
    run_id = store.create(fake.grpo(9, updates_per_batch=3))
    real = training.Steering.between_updates

    def between_updates(self, step):
        if step == 4 and not store.controls(run_id):
            store.ask(run_id, "set", {"knob": "beta", "value": 0.7})
        real(self, step)

    monkeypatch.setattr(training.Steering, "between_updates", between_updates)
    drive(store, run_id, start=fake.start)
    assert fork.steps_to_fork(run_id) == [0, 5, 9]
    child = faked(store, fork_spec(store, run_id, 5))
    assert fake.trained(store, child) == fake.trained(store, run_id)[5:]


def test_another_algorithm_has_its_own_defaults_but_what_was_chosen_stays(store):
    parent = faked(store, fake.grpo(8, temperature=0.7, learning_rate=3e-3, beta=0.1, dtype="bf16"))
    ppo = fork_spec(store, parent, algorithm="ppo").knobs
    assert (ppo["temperature"], ppo["learning_rate"], ppo["dtype"]) == (0.7, 3e-3, "bf16")
    assert (ppo["advantage"], ppo["prompts_per_step"], ppo["beta"]) == ("gae", 128, 0.1)
    dpo = fork_spec(store, parent, algorithm="dpo").knobs
    assert (dpo["beta"], dpo["temperature"]) == (1.0, 0.7)  # that β is another knob


def test_what_a_fork_may_be():
    spec = fake.grpo()
    assert [row.key for row in fork.compatible(spec)] == list(ALGORITHMS)
    table = spec_of("maze")
    keys = [row.key for row in fork.compatible(table)]
    assert keys[0] == "q_learning" and "value_iteration" not in keys
    free = {knob.key for knob in fork.movable(spec, "grpo")}
    assert {"beta", "group_size", "advantage", "reward_model"} <= free
    assert not free & {"sft_steps", "letters", "sft_target"}
    assert {"gae_lambda", "critic_learning_rate"} <= {knob.key for knob in fork.movable(spec, "ppo")}
    judge = make(algorithm_key="reward_model", task_key="sort")
    free = {knob.key for knob in fork.movable(judge, "reward_model")}
    assert {"labelled_pairs", "labelled_share"} <= free and "pair_prompts" not in free
    fork.check(judge, make(algorithm_key="reward_model", task_key="sort", knobs={"labelled_pairs": "0" * 16}))
    assert (fork.newest_before([0, 5, 9], 9), fork.newest_before([3], 3)) == (5, None)


def test_its_end_and_its_seed(store):
    parent = faked(store, fake.grpo(8))
    assert [fork_spec(store, parent, step).steps for step in (4, 8)] == [8, 16]
    assert fork_spec(store, parent, steps=11).steps == 11
    first = fork_spec(store, parent, twin=False)
    assert (first.seed, first.twin) == (1, False)
    store.create(first)
    assert fork_spec(store, parent, twin=False).seed == 2 and fork_spec(store, parent, twin=False, seed=7).seed == 7
    assert make(algorithm_key="grpo", task_key="sort", twin=False).twin  # says something of forks only


@pytest.mark.parametrize("given, words", [
    ({"step": 5}, "has no checkpoint of step 5: fork it from step 4 or 8."),
    ({"step": 99}, "has no checkpoint of step 99: fork it from step 12."),
    ({"step": 4, "steps": 4}, "it cannot end at step 4"),
    ({"seed": 2}, "leave the seed out, or use fresh"),
    ({"knobs": {"bta": 1}}, "did you mean 'beta'"),
    ({"knobs": {"beta": -1}}, "outside its bounds"),
    ({"knobs": {"sft_steps": 7}}, "A fork keeps the `sft_steps` of its parent, 0"),
    ({"knobs": {"letters": 3}}, "A fork keeps the `letters` of its parent"),
    ({"algorithm": "q_learning"}, "is of the kind maze"),
])
def test_what_cannot_be_is_told_in_words(store, given, words):
    parent = faked(store, fake.grpo(12))
    with pytest.raises(LabError, match=words) as told:
        fork_spec(store, parent, **given)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("kind, before, after", [("maze", "value_iteration", "q_learning"),
                                                 ("maze", "sarsa", "actor_critic"), ("cartpole", "ppo", "dqn")])
def test_algorithms_that_share_nothing(store, kind, before, after):
    parent = store.create(spec_of(kind, 4, before))
    checkpoint.save(run_folder(parent), 2, lambda folder: None)
    with pytest.raises(LabError, match="neither can start from the other's checkpoint"):
        fork_spec(store, parent, algorithm=after)


def test_a_size_of_what_is_there_stays(store):
    parent = store.create(spec_of("cartpole"))
    with pytest.raises(LabError, match=saying("no checkpoint", "first step")):
        fork_spec(store, parent)
    checkpoint.save(run_folder(parent), 2, lambda folder: None)
    with pytest.raises(LabError, match="A fork keeps the `hidden` of its parent, 8"):
        fork_spec(store, parent, knobs={"hidden": 16})
    assert fork_spec(store, parent, algorithm="reinforce").knobs["environments"] == 4  # not REINFORCE's own 16


# ---------------------------------------------------------------- the parent goes


def test_a_queued_fork_has_what_it_starts_from(store):
    parent = faked(store, fake.grpo(10))
    expected = fake.trained(store, parent)[4:]
    child = store.create(fork_spec(store, parent, 4))
    store.delete(parent)
    assert drive(store, child, start=fake.start) == "finished"
    assert fake.trained(store, child) == expected and [row.id for row in store.children(parent)] == [child]


def test_a_fork_with_nothing_to_start_from_says_so(store):
    parent = faked(store, fake.grpo(10))
    pruned, orphan = (store.create(fork_spec(store, parent, 4)) for _ in range(2))
    for child in (pruned, orphan):
        shutil.rmtree(run_folder(child) / START)
    shutil.rmtree(run_folder(parent) / "checkpoints" / "step-000004")
    assert drive(store, pruned, start=fake.start) == "failed"
    assert says(store.run(pruned).message, "no checkpoint of step 4", "another step")
    store.delete(parent)
    assert drive(store, orphan, start=fake.start) == "failed"
    assert says(store.run(orphan).message, parent, "step 4", "deleted")


def test_the_tree_of_forks(store):
    root = faked(store, fake.grpo(10))
    late, early = (faked(store, fork_spec(store, root, step)) for step in (8, 4))
    leaf = faked(store, fork_spec(store, early, 8, knobs={"beta": 0.1}))
    faked(store, fake.grpo(3))
    for run_id in (root, late, leaf):
        tree = lineage(store, run_id)
        assert [(b.run.id, b.depth, b.step) for b in tree] == [(root, 0, 0), (early, 1, 4), (leaf, 2, 8), (late, 1, 8)]
    store.delete(root)
    assert lineage(store, leaf) == [Branch(store.run(early), 0, 0), Branch(store.run(leaf), 1, 8)]
    with pytest.raises(LabError, match="There is no run"):
        lineage(store, root)


def test_its_clock_goes_on(store):
    parent = faked(store, fake.grpo(10))
    child = faked(store, fork_spec(store, parent, 8))
    assert store.steps_after(child)[0].seconds > store.steps_after(parent, 7)[0].seconds
    assert json.loads((run_folder(child) / "spec.json").read_text())["parent"] == [parent, 8]


def test_parents_in_a_circle_as_only_a_changed_store_has_them_end(store):
    one, other = store.create(fake.grpo()), store.create(fake.grpo())
    with store._writing() as connection:
        for run_id, parent in ((one, other), (other, one)):
            spec = json.dumps(json.loads(store.run(run_id).spec.to_json()) | {"parent": [parent, 1]})
            connection.execute(runs.update().where(runs.c.id == run_id), {"spec": spec, "parent": parent})
    assert {branch.run.id for branch in lineage(store, one)} == {one, other}


# ---------------------------------------------------------------- checkpoints of large models


def measured(store, run_id) -> dict[int, dict[str, float]]:
    return {row.step: {key: value for key, value in row.metrics.items() if METRICS[key].about == "training"}
            for row in store.steps_after(run_id)}


def test_a_fork_of_an_old_checkpoint_of_a_large_model_says_that_its_optimizer_is_new(store, monkeypatch):
    """The newest two and the first can be continued exactly; one between them with new moments, and both say so."""
    monkeypatch.setattr(checkpoints, "OPTIMIZER_BYTES", 0)  # so the model counts as a large one
    monkeypatch.setattr(checkpoints, "SHARED_BYTES", 0)
    monkeypatch.setattr(training, "CHECKPOINT_STEPS", 2)
    parent = done(store, spec_of("llm", 6, reward_source="noisy_verifier", reward_noise=0.3))
    expected = measured(store, parent)
    assert {step: fork.optimizer_note(parent, step) == "" for step in fork.steps_to_fork(parent)} == {
        0: True, 2: False, 4: True, 6: True}
    assert "step 2 holds the weights without the optimizer state" in fork.optimizer_note(parent, 2)
    child = done(store, fork_spec(store, parent, 4))
    assert measured(store, child) == {at: row for at, row in expected.items() if at > 4}
    assert not [event for event in store.events_after(child) if event.kind == "note" and "optimizer" in str(
        event.payload)]
    child = done(store, fork_spec(store, parent, 2))
    found = measured(store, child)
    assert found[3]["reward"] == expected[3]["reward"] and found[6] != expected[6]
    assert any("step 2 holds the weights without the optimizer state" in event.payload["text"]
               for event in store.events_after(child) if event.kind == "note")
    references = [path / "reference.safetensors" for _, path in checkpoint.steps(run_folder(child))]
    assert len({path.stat().st_ino for path in references}) == 1 < len(references), "saved once"
