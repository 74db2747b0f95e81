"""A spec is whole, survives JSON, and refuses in one sentence what cannot be run."""

import dataclasses
import json

import pytest

from labcore.catalog import choices
from labcore.catalog.choice import Choice
from labcore.catalog.choices import PREFERENCE_LOSS
from labcore.catalog.knob import Knob
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.catalog.llm.tasks import TASKS
from labcore.errors import LabError
from labcore.runs.spec.run_spec import BASE_SEED, RunSpec, base_spec, make, with_knob
from labcore.runs.spec.together import RANGES, check_together
from tests.every import every


def refused(words, call, *given, **named):
    with pytest.raises(LabError) as error:
        call(*given, **named)
    text = str(error.value)
    assert all(word in text for word in words), text
    assert "\n" not in text and text[-1] in ".?" and ". " not in text.replace("Dr. ", "")  # one sentence
    return text


def grpo(**knobs):
    return make(algorithm_key="grpo", task_key="sort", knobs=knobs)


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "1+1=", "answer": "2"}\n')
    return str(path)


def test_every_knob_is_there():
    spec = grpo(beta=0.2)
    assert spec.knobs["beta"] == 0.2 and spec.knobs["letters"] == 6 and spec.knobs["group_size"] == 8
    assert (spec.kind, spec.model, spec.seed, spec.threads, spec.parent) == ("llm", "tiny", 0, 1, None)
    for key, row in ALGORITHMS.items():
        assert make(algorithm_key=key, task_key="sort").steps == row.steps


def test_a_task_has_defaults_of_its_own_and_the_user_the_last_word():
    add = make(algorithm_key="grpo", task_key="add")
    assert add.knobs["max_new_tokens"] == TASKS["add"].defaults["max_new_tokens"] != grpo().knobs["max_new_tokens"]
    assert make(algorithm_key="grpo", task_key="add", knobs={"max_new_tokens": 9}).knobs["max_new_tokens"] == 9


def test_values_take_the_knobs_type():
    knobs = make(algorithm_key="ppo", task_key="sort", knobs={
        "beta": "0.5", "group_size": "4", "whiten_advantages": "off", "temperature": 1, "prompts_per_step": 64.0}).knobs
    taken = [knobs[key] for key in ("beta", "group_size", "whiten_advantages", "temperature", "prompts_per_step")]
    assert taken == [0.5, 4, False, 1.0, 64] and list(map(type, taken)) == [float, int, bool, float, int]


def test_json_there_and_back(prompts):
    spec = make(algorithm_key="grpo", task_key="prompts", data=prompts, seed=3, steps=7, parent=("grpo-1", 20),
                knobs={"pattern": "ä\n\"'"})
    text = spec.to_json()
    assert RunSpec.from_json(text) == spec and isinstance(RunSpec.from_json(text).parent, tuple)
    assert json.loads(text)["parent"] == ["grpo-1", 20]
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.seed = 4


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '{"kind": "llm"}', '{"nobody": 1}'])
def test_what_is_no_spec(text):
    with pytest.raises(LabError, match=r"This is not a run's spec.json .*export the run again"):
        RunSpec.from_json(text)


def test_a_hash_names_the_spec_and_the_content_of_its_file(prompts):
    def spec(**given):
        return make(algorithm_key="grpo", task_key="prompts", data=prompts, **given)
    first = spec().hash()
    assert first == spec().hash() and len(first) == 12
    assert len({first, spec(seed=1).hash(), spec(steps=9).hash(), spec(knobs={"beta": 0.5}).hash()}) == 4
    with open(prompts, "a") as file:
        file.write('{"prompt": "1+2=", "answer": "3"}\n')
    assert spec().hash() != first


@every("given, words", [
    ({"kind": "mazes"}, ["'mazes'", "did you mean 'maze'"]),
    ({"kind": "maze"}, ["algorithm 'grpo' is of the kind llm or exact, not maze"]),
    ({"algorithm_key": "sarsa"}, ["algorithm 'sarsa' is of the kind maze, not llm"]),
    ({"kind": "maze", "algorithm_key": "sarsa"}, ["task 'sort' is of the kind llm, not maze"]),
    ({"kind": "maze", "algorithm_key": "sarsa", "task_key": "cliff", "model": "tiny"}, ["maze has no model to choose"]),
    ({"kind": "cartpole", "algorithm_key": "ppo", "task_key": "CartPole-v1", "model": ""}, ["model is missing"]),
    ({"kind": "maze", "algorithm_key": "sarsa", "task_key": "clif"}, ["'clif'", "did you mean 'cliff'"]),
    ({"kind": "cartpole", "algorithm_key": "dqn", "task_key": "Cartpole-v1"}, ["did you mean 'CartPole-v1'"]),
    ({"algorithm_key": "grpoo"}, ["algorithm 'grpoo'", "did you mean 'grpo'"]),
    ({"task_key": "sorts"}, ["task 'sorts'", "did you mean 'sort'"]),
    ({"task_key": "preferences"}, ["GRPO cannot learn", "'preferences'", "use dpo, ipo, cdpo or another of the"]),
    ({"device": "gpu"}, ["device 'gpu'", "cpu"]),
    ({"seed": -1}, ["seed must be a whole number from 0"]),
    ({"seed": True}, ["seed must be a whole number"]),
    ({"seed": 2**31}, ["seed must be", "2147483647"]),
    ({"steps": 0}, ["steps must be a whole number from 1"]),
    ({"steps": 2.5}, ["steps must be a whole number", "2.5"]),
    ({"threads": 0}, ["threads must be a whole number from 1"]),
    ({"task_key": "prompts"}, ["needs your prompts file", "--prompts FILE"]),
    ({"task_key": "text"}, ["needs your text file", "--text FILE"]),
    ({"task_key": "prompts", "data": "nowhere.jsonl"}, ["nowhere.jsonl", "check the path"]),
])
def test_what_cannot_be_run(given, words):
    refused(words, make, **{"algorithm_key": "grpo", "task_key": "sort", **given})


@every("algorithm, knobs, words", [
    ("grpo", {"betta": 1}, ["GRPO on 'sort' has no knob 'betta'", "did you mean 'beta'"]),
    ("grpo", {"gamma": 1}, ["GRPO on 'sort' has no knob 'gamma'"]),
    ("grpo", {"beta": -1}, ["`beta` is -1, outside its bounds", "from 0 to 10"]),
    ("grpo", {"beta": "much"}, ["`beta` must be a number, not 'much'"]),
    ("grpo", {"beta": float("nan")}, ["`beta` must be a finite number"]),
    ("grpo", {"beta": None}, ["`beta` must be a number"]), ("grpo", {"beta": 10**400}, ["`beta` must be a number"]),
    ("grpo", {"beta": True}, ["`beta` must be a number"]),
    ("grpo", {"group_size": 2.5}, ["`group_size` must be a whole number, not 2.5"]),
    ("grpo", {"group_size": 0}, ["`group_size` is 0, outside"]),
    ("grpo", {"dtype": "fp8"}, ["`dtype` cannot be 'fp8'", "fp32, bf16"]),
    ("grpo", {"advantage": 3}, ["`advantage` must be a text"]),
    ("ppo", {"whiten_advantages": "perhaps"}, ["`whiten_advantages` must be on or off"]),
    ("grpo", {"group_size": 1}, ["`group_size` is 1", "GRPO compares", "use 2 or more"]),
    ("rloo", {"group_size": 1}, ["`group_size` is 1", "RLOO compares"]),
    ("grpo", {"prompts_per_step": 12, "mini_batches": 5}, ["`mini_batches` 5 does not divide", "12", "use 3, 4 or 6"]),
    ("ppo", {"prompts_per_step": 1, "mini_batches": 2}, ["`mini_batches` 2 does not divide", "use 1"]),
    ("grpo", {"ratio": "none"}, ["surrogate `clip` needs a ratio"]),
    ("grpo", {"advantage": "gae"}, ["`gae` needs `gamma` and `gae_lambda`", "GRPO does not have", "run PPO"]),
    ("reinforce", {"surrogate": "clip", "ratio": "token"}, ["`clip` needs `clip_low` and `clip_high`", "GRPO or RLOO"]),
])
def test_knobs_that_cannot_be(algorithm, knobs, words):
    refused(words, make, algorithm_key=algorithm, task_key="sort", knobs=knobs)


DIFFERENCES = {"sigmoid", "cdpo", "robust", "ipo", "ipo_mean", "hinge", "exo_pair", "discopop", "sigmoid_norm"}


@every("loss", PREFERENCE_LOSS.names)
def test_another_divergence_only_where_its_constant_cancels(loss):
    """f-DPO's reward has a constant of the prompt, which only the difference of a pair's sides is free of."""
    pairs = {"pairs": "policy_and_reference"} if PREFERENCE_LOSS[loss].opposed else {}

    def dpo(**knobs):
        return make(algorithm_key="dpo", task_key="sort", knobs=knobs | pairs)
    assert dpo(preference_loss=loss).knobs["divergence"] == "reverse_kl"
    if loss in DIFFERENCES or not PREFERENCE_LOSS[loss].reference:
        dpo(preference_loss=loss, divergence="jensen_shannon")
    else:
        words = [f"`{loss}`", "set `divergence=reverse_kl`"]
        refused(words, dpo, preference_loss=loss, divergence="jensen_shannon")
        refused(words, dpo, second_loss=loss, divergence="forward_kl")


def test_kto_needs_another_prompt_to_compare_with():
    spec = make(algorithm_key="kto", task_key="sort", knobs={"pairs_per_step": 2})
    refused(["`kto`", "set `pairs_per_step` to 2 or more"], with_knob, spec, "pairs_per_step", 1)
    assert make(algorithm_key="dpo", task_key="sort", knobs={"pairs_per_step": 1}).knobs["pairs_per_step"] == 1


def test_lengths_the_wrong_way_round(prompts):
    refused(["`length_low` 9 is above `length_high` 3", "swap"], make, algorithm_key="grpo", task_key="prompts",
            data=prompts, knobs={"length_low": 9, "length_high": 3})


@pytest.mark.parametrize("algorithm, knobs", [
    ("reinforce", {"group_size": 1}), ("ppo", {"group_size": 1}),
    ("grpo", {"advantage": "batch_mean", "group_size": 1}), ("ppo", {"prompts_per_step": 6, "mini_batches": 3})])
def test_what_is_unusual_but_right(algorithm, knobs):
    spec = make(algorithm_key=algorithm, task_key="sort", knobs=knobs)
    check_together(spec.row, spec.knobs)
    assert spec.knobs.items() >= knobs.items()


def test_a_knob_changed_during_the_run():
    spec = grpo()
    changed = with_knob(spec, "beta", "0.3")
    assert changed.knobs["beta"] == 0.3 and spec.knobs["beta"] == 0.04
    assert dataclasses.replace(changed, knobs=spec.knobs) == spec


@pytest.mark.parametrize("key, value, words", [
    ("betta", 1, ["no knob 'betta'", "did you mean 'beta'"]),
    ("beta", 11, ["`beta` is 11, outside"]),
    ("dtype", "bf16", ["`dtype` cannot change during a run", "dtype=bf16"]),
    ("letters", 4, ["`letters` cannot change during a run"]),
    ("group_size", 1, ["`group_size` is 1", "use 2 or more"]),
    ("mini_batches", 5, ["`mini_batches` 5 does not divide the batch of 32"]),
    ("prompts_per_step", "many", ["`prompts_per_step` must be a whole number"])])
def test_a_change_that_cannot_be(key, value, words):
    refused(words, with_knob, grpo(), key, value)


def test_the_base_is_sft_on_the_same_task():
    spec = make(algorithm_key="ppo", task_key="sort", seed=5, device="cpu", threads=2,
                knobs={"letters": 4, "sft_target": 0.6, "sft_steps": 33, "learning_rate": 0.5})
    base = base_spec(spec)
    assert (base.algorithm, base.task, base.model, base.steps) == ("sft", "sort", "tiny", 33)
    assert (base.seed, base.device, base.threads) == (BASE_SEED, "cpu", 2)
    assert (base.knobs["letters"], base.knobs["sft_target"]) == (4, 0.6)
    assert base.knobs["learning_rate"] == ALGORITHMS["sft"].knob("learning_rate").default


def test_runs_that_differ_elsewhere_share_their_base():
    one, other = grpo(), make(algorithm_key="dpo", task_key="sort", seed=9, steps=3, knobs={"beta": 0.3})
    assert base_spec(one).hash() == base_spec(other).hash()
    for changed in ({"letters": 5}, {"sft_target": 0.5}, {"sft_steps": 3}):
        assert base_spec(grpo(**changed)).hash() != base_spec(one).hash()


def test_the_base_reads_the_same_file(prompts):
    spec = make(algorithm_key="grpo", task_key="prompts", data=prompts)
    assert base_spec(spec).data == prompts


@pytest.mark.parametrize("given", [{"model": "a/folder"}, {"algorithm_key": "sft"}, {"knobs": {"sft_steps": 0}}])
def test_what_starts_from_given_weights(given):
    assert base_spec(make(**{"algorithm_key": "grpo", "task_key": "sort", **given})) is None


@pytest.mark.parametrize("knob, before", [("n_steps", 1), ("layer_norm", False)])
def test_a_dqn_run_of_before_a_knob_goes_on_as_it_was(knob, before):
    spec = make(kind="cartpole", algorithm_key="dqn", task_key="CartPole-v1")
    written = json.loads(spec.to_json())
    del written["knobs"][knob]
    assert RunSpec.from_json(json.dumps(written)).knobs[knob] == before != spec.knobs[knob]


@pytest.mark.parametrize("model, template", [("tiny", "auto"), ("a/folder", "off")])
def test_a_run_of_before_templates_is_todays_where_its_model_has_none_and_keeps_plain_text_elsewhere(model, template):
    spec = make(algorithm_key="grpo", task_key="sort", model=model)
    written = json.loads(spec.to_json())
    for key in ("template", "system_prompt", "thinking", "begins_with"):
        del written["knobs"][key]
    assert RunSpec.from_json(json.dumps(written)).knobs["template"] == template


def test_a_choice_whose_knobs_no_algorithm_has_is_refused_without_naming_one(monkeypatch):
    """A mix has every knob, but supervised runs cannot be mixed."""
    own = Choice("mine", "mine", "x", knobs=(Knob("own_weight", "Weight", 1.0, "Higher: a. Lower: b."),))
    for family, begun in ((choices.SFT_LOSS, "dft"), (choices.SHAPING, "grpo")):
        monkeypatch.setitem(vars(family), "members", (*family.members, own))
        spec = make(algorithm_key=begun, task_key="sort")
        with pytest.raises(LabError) as caught:
            check_together(spec.row, {**spec.knobs, family.key: "mine"})
        said = str(caught.value)
        assert "needs `own_weight`" in said and ": choose another" in said and "run " not in said
        assert ("make a mix" in said) == (begun == "grpo")


@pytest.mark.parametrize("low, high", RANGES)
def test_the_ends_of_a_range_are_not_swapped(low, high):
    row = next(row for row in (*ALGORITHMS.values(), *TASKS.values()) if any(knob.key == low for knob in row.knobs))
    knob, = (knob for knob in row.knobs if knob.key == low)
    knobs = grpo().knobs | {low: knob.high, high: knob.low}
    refused([f"`{low}` {knob.high} is above `{high}` {knob.low}", "swap"], check_together, ALGORITHMS["grpo"], knobs)
    check_together(ALGORITHMS["grpo"], knobs | {high: knob.high})


@pytest.mark.parametrize("algorithm, task, why", [
    ("dpo", "guess", "whose completions have several turns"), ("reward_model", "lookup", "have several turns"),
    ("prm", "reviews", "whose answers have no steps to score"), ("grpo", "preferences", "which has no verifier")])
def test_an_algorithm_that_cannot_learn_a_task_says_the_reason(algorithm, task, why):
    with pytest.raises(LabError, match=f"cannot learn from the task '{task}', .*{why}"):
        make(algorithm_key=algorithm, task_key=task)
