"""Defaults for pretrained weights: TRL's own numbers, each with a source, and runs that can be started as they are."""

import pytest

from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.catalog.llm.pretrained import FULL, LORA, SCRATCH, defaults
from labcore.catalog.llm.tasks import TASKS
from labcore.catalog.mix.cautions import of_run
from labcore.catalog.mix.nearest import LOOPS
from labcore.catalog.mix.summary import summarise
from labcore.runs.spec.run_spec import knobs_of, make
from tests.every import every

# Read in the sources of TRL 1.16.0: trainer/*_config.py and experimental/*/*_config.py.
TRL = {"grpo": {"learning_rate": 1e-6, "beta": 0.0, "group_size": 8, "updates_per_batch": 1},
       "dr_grpo": {"learning_rate": 1e-6}, "rloo": {"learning_rate": 1e-6, "beta": 0.05, "updates_per_batch": 1},
       "dpo": {"learning_rate": 1e-6, "beta": 0.1, "pairs_per_step": 8}, "ipo": {"learning_rate": 1e-6, "beta": 0.1},
       "kto": {"learning_rate": 1e-6, "beta": 0.1}, "orpo": {"learning_rate": 1e-6, "beta": 0.1},
       "simpo": {"learning_rate": 1e-6, "beta": 2.0}, "online_dpo": {"learning_rate": 5e-7, "beta": 0.1,
                                                                     "temperature": 0.9, "group_size": 2},
       "sft": {"learning_rate": 2e-5, "sequences_per_step": 8}, "dft": {"learning_rate": 2e-5},
       "reward_model": {"learning_rate": 1e-4}, "gmpo": {"clip_low": 0.4, "clip_high": 0.4},
       # verl 0.9.1's and the papers' where TRL has none.
       "ppo": {"learning_rate": 1e-6, "critic_learning_rate": 1e-5, "beta": 0.05, "mini_batches": 4},
       "gspo": {"clip_low": 3e-4, "clip_high": 4e-4}, "dapo": {"clip_high": 0.28}}
WORK = [(key, task) for key, row in ALGORITHMS.items() for task in ("add", "reviews", "prompts", "preferences", "text")
        if row.learns(TASKS[task])]


def values(algorithm: str, task: str, weights: str) -> dict:
    return {knob.key: knob.default for knob in knobs_of(ALGORITHMS[algorithm], TASKS[task], weights)}


@every("algorithm", TRL)
def test_the_numbers_are_those_of_the_tools(algorithm):
    found = values(algorithm, "prompts", FULL)
    assert {key: found[key] for key in TRL[algorithm]} == TRL[algorithm]
    assert (found["schedule"], found["warmup_steps"], found["weight_decay"]) == ("linear", 0, 0.0)
    assert (found["adam_beta1"], found["adam_beta2"], found["adam_epsilon"], found["max_grad_norm"]) == (
        0.9, 0.999, 1e-8, 1.0)


@every("algorithm", ALGORITHMS)
def test_adapters_take_ten_times_the_rate(algorithm):
    full, adapters = (values(algorithm, "prompts", weights) for weights in (FULL, LORA))
    rates = {"learning_rate", "critic_learning_rate"} & full.keys()
    assert {key: adapters[key] for key in rates} == pytest.approx({key: 10 * full[key] for key in rates})
    rates |= {"reference_every"}  # with LoRA the reference is the frozen base
    assert {key: value for key, value in full.items() if key not in rates} == {
        key: value for key, value in adapters.items() if key not in rates}


@every("algorithm, task, weights", [
    *((*each, FULL) for each in WORK), *((*each, LORA) for each in {key: (key, task) for key, task in WORK}.values())])
def test_every_default_has_a_source_fits_its_knob_and_is_not_warned_of(algorithm, task, weights):
    row, work = ALGORITHMS[algorithm], TASKS[task]
    found = defaults(row, work, weights)
    assert {"learning_rate", "schedule"} <= found.keys() <= {knob.key for knob in (*row.knobs, *work.knobs)}
    declared = {knob.key: knob for knob in knobs_of(row, work, weights)}
    for key, default in found.items():
        knob = declared[key]
        assert knob.check(default.value) == default.value == knob.default and len(default.source) > 8, key
        assert knob.source == default.source
        if knob.safe and key not in ("clip_low", "clip_high", "prompts_per_step", "group_size", "temperature"):
            assert knob.safe[0] <= default.value <= knob.safe[1], key
    assert not [key for key, knob in declared.items() if knob.source and key not in found]
    usual = values(algorithm, task, weights)
    if row.loop in LOOPS:
        nearest = summarise(algorithm, usual, work, weights).nearest
        assert (nearest.row.key, nearest.parts, nearest.numbers) == (algorithm, (), ())
    assert of_run("llm", algorithm, usual, usual) == []


def test_weights_from_scratch_keep_the_rows_defaults():
    for algorithm, task in WORK:
        assert defaults(ALGORITHMS[algorithm], TASKS[task], SCRATCH) == {}
        assert not [knob.key for knob in knobs_of(ALGORITHMS[algorithm], TASKS[task]) if knob.source]


def test_what_to_beware_of_is_said_where_somebody_chose_it():
    usual = values("grpo", "add", FULL)
    assert of_run("llm", "grpo", usual | {"advantage": "group_mean", "kl_estimator": "k1", "beta": 0.1}, usual)


def test_a_step_has_as_many_completions_whatever_the_groups():
    for algorithm, row in ALGORITHMS.items():
        found = values(algorithm, "prompts", FULL)
        if row.loop == "online":
            assert found["prompts_per_step"] * found["group_size"] == 32 and found["max_new_tokens"] == 256
            assert found["prompts_per_step"] % found.get("mini_batches", 1) == 0


def test_a_built_in_task_keeps_its_length_limit():
    assert values("grpo", "add", FULL)["max_new_tokens"] == 5


def test_a_run_has_them_unless_something_is_said():
    spec = make(algorithm_key="grpo", task_key="add", model="some/model", knobs={"prompts_per_step": 6})
    assert (spec.knobs["learning_rate"], spec.knobs["beta"], spec.knobs["prompts_per_step"], spec.steps) == (
        1e-6, 0.0, 6, 100)
    adapted = make(algorithm_key="grpo", task_key="add", model="some/model", steps=7, knobs={"lora_rank": "8"})
    assert (adapted.knobs["learning_rate"], adapted.steps, adapted.weights) == (1e-5, 7, LORA)
    assert make(algorithm_key="grpo", task_key="add").knobs["learning_rate"] == 7e-4


@pytest.mark.parametrize("limit", [1, 8, 100, None])
def test_the_overlong_buffer_follows_the_length_limit(tmp_path, limit):
    (tmp_path / "a.jsonl").write_text('{"prompt": "1+1=", "answer": "2"}')
    spec = make(algorithm_key="grpo", task_key="prompts", model="org/model", data=str(tmp_path / "a.jsonl"),
                knobs={} if limit is None else {"max_new_tokens": limit})
    default = next(knob.default for knob in spec.declared if knob.key == "overlong_buffer")
    assert spec.knobs["overlong_buffer"] == default == (limit or 256) // 5
