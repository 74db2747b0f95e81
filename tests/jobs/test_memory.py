"""What a run will need of the memory: each formula by hand numbers, the phases, and what is advised."""

from __future__ import annotations

from dataclasses import replace

import pytest

from labcore import machine
from labcore.jobs import memory
from labcore.jobs.memory import Batch, Estimate, Sizes
from labcore.spec.run_spec import make

HELD = [{"name": "policy", "parameters": 1000, "learnt": 1000}, {"name": "reference", "parameters": 1000, "learnt": 0},
        {"name": "critic", "parameters": 1010, "learnt": 1010}]
SIZES = Sizes(HELD[:2], layers=2, heads=2, hidden=8, queries=8, keys=4, inner=16, vocabulary=10, context=64, prompt=5,
              answer=0, packs=True, shares=True, longest_packed=40, most_logits=2**26, most_copied=10**6,
              sampled_at_once=64)
DONE = Batch(prompts=3, group=2, sampled=6, prompt=5, length=4)


@pytest.fixture(autouse=True)
def on_a_processor(monkeypatch):
    monkeypatch.setattr(machine, "device_kind", lambda name: "cpu")
    monkeypatch.setattr(machine, "free_memory", lambda name: 10**9)


def test_each_formula_by_hand():
    assert (memory.weights(10), memory.gradients(10), memory.optimizer(10), memory.rounded(10)) == (40, 40, 80, 20)
    assert memory.kv_cache(SIZES, rows=6, tokens=9, width=4) == 4 * 2 * 2 * 4 * 6 * 9
    assert memory.next_logits(SIZES, rows=6) == 4 * 4 * 6 * 10
    # A prompt of 5 and two completions of 4, of which the last token predicts nothing: 11 tokens in a row.
    of_token = 6 * 8 + 3 * 8 + 4 * 16
    assert memory.activations(SIZES, DONE, 4) == 4 * 2 * 33 * (of_token + 2 * 4)
    assert memory.activations(SIZES, DONE, 2) == 2 * 2 * 33 * (of_token + 4 * 8 + 2 * 4), "norms in float32"
    assert memory.attention(SIZES, DONE, 2) == 2 * 2 * 2 * 3 * 11**2
    assert memory.logits(SIZES, DONE, 4, with_entropy=False) == 6 * 4 * 10 * 20
    assert memory.logits(SIZES, DONE, 2, with_entropy=True) == 6 * 4 * 10 * 22


def test_a_group_in_one_row_on_one_cache_or_each_row_alone():
    of_token, long = 6 * 8 + 3 * 8 + 4 * 16, replace(DONE, length=30)
    assert memory.activations(SIZES, long, 4) == 4 * 2 * (3 * 63 * of_token + 6 * 34 * 2 * 8), "keys of all heads"
    alone = replace(SIZES, packs=False, shares=False)
    assert memory.activations(alone, DONE, 4) == 4 * 2 * 6 * 8 * (of_token + 2 * 4)


@pytest.mark.parametrize(("algorithm", "knobs", "expected"), [
    ("grpo", {"prompts_per_step": 8, "group_size": 4, "max_new_tokens": 7}, Batch(8, 4, 32, 5, 7)),
    ("grpo", {"prompts_per_step": 8, "group_size": 4, "mini_batches": 2, "max_new_tokens": 4000},
     Batch(4, 4, 32, 5, 59)),
    ("dpo", {"pairs_per_step": 8, "group_size": 4, "eval_prompts": 300}, Batch(8, 2, 300, 5, 8)),
    ("online_dpo", {"pairs_per_step": 8, "group_size": 4}, Batch(8, 2, 32, 5, 8)),
    ("sft", {"sequences_per_step": 8, "eval_prompts": 16}, Batch(8, 1, 16, 5, 8))])
def test_the_batch_of_each_loop(algorithm, knobs, expected):
    assert memory.batch(make(algorithm_key=algorithm, task_key="sort", knobs=knobs), SIZES) == expected


def test_logits_bound_a_micro_batch_and_given_answers_its_length():
    spec = make(algorithm_key="grpo", task_key="sort", knobs={"prompts_per_step": 8, "group_size": 4})
    assert memory.batch(spec, replace(SIZES, most_logits=3 * 4 * 8 * 10)).prompts == 3
    assert memory.batch(spec, replace(SIZES, most_logits=1)).prompts == 1, "groups stay whole"
    sft = make(algorithm_key="sft", task_key="sort")
    assert memory.batch(sft, replace(SIZES, answer=3)).length == 3


def test_the_rows_are_those_of_what_is_held_and_the_largest_phase_counts():
    ppo = make(algorithm_key="ppo", task_key="sort", knobs={"dtype": "bf16"})
    found = {part.name: part for part in memory.parts(ppo, replace(SIZES, held=HELD))}
    assert (found["Critic"].size, found["Optimizer"].size, found["Gradients"].size) == (4040, 8 * 2010, 4 * 2010)
    assert (found["Weights in bf16"].size, found["Process"].size) == (2 * 1010, 48_000_000)
    assert found["Attention weights"].size and not found["Reward model"].size
    grpo = make(algorithm_key="grpo", task_key="sort")
    rows = memory.parts(grpo, SIZES)
    assert [part.name for part in rows if part.when == memory.DRAWS and part.size == 3 * 4000] == ["Line of the update"]
    always = sum(part.size for part in rows if part.when == memory.ALWAYS)
    phases = [sum(part.size for part in rows if part.when == when) for when in memory.PHASES[1:]]
    assert memory.peak(rows) == always + max(phases) and phases[1] == max(phases)
    half = memory.parts(make(algorithm_key="reward_model", task_key="sort"), replace(SIZES, held=[
        HELD[0] | {"learnt": 0}, HELD[2] | {"name": "reward_model"}]))
    assert {part.name for part in half if not part.size} >= {"Logits", "Line of the update", "Weights before the step"}


def test_on_a_gpu_what_decoding_reads_stays_there():
    def found(device, shares=True):
        spec = make(algorithm_key="grpo", task_key="sort", knobs={"dtype": "bf16"}, device=device)
        return {part.name: part for part in memory.parts(spec, replace(SIZES, shares=shares))}
    on_cpu, on_gpu = found("cpu"), found("cuda")
    assert (on_cpu["KV cache"].when, on_gpu["KV cache"].when) == (memory.SAMPLES, memory.ALWAYS)
    assert on_gpu["Weights in bf16"].size == 2 * on_cpu["Weights in bf16"].size > 0
    alone = found("cuda", shares=False)
    assert alone["Weights in bf16"] == on_cpu["Weights in bf16"] and not alone["KV cache"].size


def test_a_run_that_does_not_fit_is_told_what_makes_it_fit():
    spec = make(algorithm_key="grpo", task_key="sort", model="medium", knobs={"max_new_tokens": 32})
    sizes = replace(SIZES, layers=40, hidden=512, inner=2048, longest_packed=10_000)
    need = Estimate(spec, sizes, free=2 * 10**9)
    assert need.sure is False and need.verdict() == (
        f"It does not fit: it needs about {need.peak / 1e9:.1f} GB at the most, and 2.0 GB are free now.")
    small, lora = replace(SIZES), replace(sizes, held=[HELD[0] | {"learnt": 10}])
    found = [vars(lora), "no such model", vars(small)]
    assert [*map(dict, memory.others(spec))] == [{"lora_rank": 8}, {"model": "small"}, {"model": "tiny"}]
    told = memory.with_ways(need, found)
    ways = [*map(dict, told.ways)]
    assert [[*way] for way in ways] == [["prompts_per_step"], ["max_new_tokens"], ["model"]]
    for way in told.ways[:2]:
        assert Estimate(memory._changed(spec, way), sizes, need.free).sure
        doubled = [(key, 2 * value) for key, value in way]
        assert not Estimate(memory._changed(spec, doubled), sizes, need.free).sure, "not smaller than it has to be"
    assert told.advice() == (f"So that it fits, set prompts_per_step to {ways[0]['prompts_per_step']}, or "
                             "max_new_tokens "
                             f"to {ways[1]['max_new_tokens']}, or model to tiny.")
    none = memory.with_ways(replace(need, free=1000), found)
    assert none.ways == [] and none.advice().startswith("No smaller batch makes it fit")
    little = memory.with_ways(replace(need, free=160_000_000))
    assert len(little.ways) == 1 and len(little.ways[0]) > 1 and " and " in little.advice(), "several knobs together"


def test_close_and_unknown_are_said_as_what_they_are():
    need = Estimate(make(algorithm_key="grpo", task_key="sort"), SIZES, 10**9)
    assert need.verdict().startswith("It fits: it needs about ") and need.advice() == ""
    assert replace(need, free=int(1.1 * need.peak)).verdict().startswith("It may not fit: ")
    unknown = replace(need, free=None)
    assert unknown.verdict().endswith("cannot be found out.") and memory.with_ways(unknown) == unknown
    assert memory.estimate(need.spec, "no such model").fault == "no such model"
