"""What a run will need of the memory: each formula by hand numbers, and the phases."""

from dataclasses import replace

import pytest

from labcore import machine
from labcore.llm.nets.forward import layers_of
from labcore.llm.nets.micro_batches import at_once, room_of
from labcore.llm.sizing import memory, passes, ways
from labcore.llm.sizing.memory import Sizes
from labcore.llm.sizing.passes import Batch, Mode
from labcore.runs.spec.run_spec import make
from tests.llm.tools import model

HELD = [{"name": "policy", "parameters": 1000, "learnt": 1000}, {"name": "reference", "parameters": 1000, "learnt": 0},
        {"name": "critic", "parameters": 1010, "learnt": 1010}]
SIZES = Sizes(held=HELD[:2], layers=2, heads=2, hidden=8, queries=8, keys=4, inner=16, vocabulary=10, context=64,
              prompt=5, answer=0, packs=True, own=True, fused=False, shares=True, plain_head=True, longest_packed=40,
              most_logits=2**26, most_copied=10**6, sampled_at_once=64)
HALF, GPU = Mode(width=2), Mode("cuda", width=2)
DONE = Batch(prompts=3, group=2, sampled=6, prompt=5, length=4)


@pytest.fixture(autouse=True)
def on_a_processor(monkeypatch):
    monkeypatch.setattr(machine, "device_kind", lambda name: "cpu")


def test_each_formula_by_hand():
    assert memory.kv_cache(SIZES, DONE, tokens=9, width=4, once=False) == 4 * 2 * 2 * 4 * 6 * 9
    assert memory.kv_cache(SIZES, DONE, tokens=9, width=4, once=True) == 4 * 2 * 2 * 4 * (6 * 4 + 3 * 5)
    assert memory.next_logits(SIZES, rows=6) == 4 * 4 * 6 * 10
    # A prompt of 5 and two completions of 4, of which the last token predicts nothing: 11 tokens in a row.
    of_token = 6 * 8 + 3 * 8 + 4 * 16
    assert passes.activations(SIZES, DONE, Mode()) == 4 * 2 * 33 * (of_token + 2 * 4)
    assert passes.activations(SIZES, DONE, HALF) == 2 * 2 * 33 * (of_token + 4 * 8 + 2 * 4), "norms in float32"
    assert passes.attention(SIZES, DONE, HALF) == 2 * 2 * 2 * 3 * 11**2
    assert passes.logits(SIZES, DONE, Mode(), with_entropy=False) == 6 * 4 * 10 * 20
    assert passes.logits(SIZES, DONE, HALF, with_entropy=True) == 6 * 4 * 10 * 22
    assert passes.logits(SIZES, DONE, Mode("cuda", width=2), with_entropy=True) == 6 * 4 * 10 * 4
    fused, alone = replace(SIZES, fused=True, longest_packed=0, own=False), replace(DONE, group=1)
    assert passes.way(fused, alone, GPU) == "causal"
    assert passes.activations(fused, alone, GPU) == 2 * 2 * 3 * 8 * (2 * 8 + 2 * 8 + 2 * 4)


def test_a_group_in_one_row_on_one_cache_or_each_row_alone():
    of_token, long = 6 * 8 + 3 * 8 + 4 * 16, replace(DONE, length=30)
    assert passes.activations(SIZES, long, Mode()) == 4 * 2 * (3 * 63 * of_token + 6 * 34 * 2 * 8), "keys of all heads"
    alone = replace(SIZES, packs=False, shares=False)
    assert passes.activations(alone, DONE, Mode()) == 4 * 2 * 6 * 8 * (of_token + 2 * 4)


@pytest.mark.parametrize(("algorithm", "knobs", "expected"), [
    ("grpo", {"prompts_per_step": 8, "group_size": 4, "max_new_tokens": 7}, Batch(8, 4, 32, 5, 7)),
    ("grpo", {"prompts_per_step": 8, "group_size": 4, "mini_batches": 2, "max_new_tokens": 4000},
     Batch(4, 4, 32, 5, 59)),
    ("dpo", {"pairs_per_step": 8, "group_size": 4, "eval_prompts": 300}, Batch(8, 2, 300, 5, 8)),
    ("online_dpo", {"pairs_per_step": 8, "group_size": 4}, Batch(8, 2, 32, 5, 8)),
    ("sft", {"sequences_per_step": 8, "eval_prompts": 16}, Batch(8, 1, 16, 5, 8))])
def test_the_batch_of_each_loop(algorithm, knobs, expected):
    assert memory.batch(make(algorithm_key=algorithm, task_key="sort", knobs=knobs), SIZES) == expected


def test_what_bounds_a_micro_batch_and_given_answers_its_length():
    spec = make(algorithm_key="grpo", task_key="sort", knobs={"prompts_per_step": 8, "group_size": 4})
    whole = replace(SIZES, plain_head=False)  # its logits cannot be made in chunks
    assert memory.batch(spec, replace(whole, most_logits=3 * 4 * 8 * 10)).prompts == 3
    assert memory.batch(spec, replace(whole, most_logits=1)).prompts == 1, "groups stay whole"
    assert memory.batch(spec, replace(SIZES, most_logits=1)).prompts == 8
    one = passes.activations(SIZES, Batch(1, 4, 0, 5, 8), Mode())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(passes, "ON_PROCESSOR", 3 * one + 1)
        assert memory.batch(spec, SIZES).prompts == 3, "activations"
        deep = replace(SIZES, layers=20)
        patched.setattr(passes, "ON_PROCESSOR", passes.activations(deep, Batch(2, 4, 0, 5, 8), Mode()))
        again = replace(spec, knobs={**spec.knobs, "gradient_checkpointing": True})
        assert [memory.batch(each, deep).prompts for each in (spec, again)] == [2, 8]
    sft = make(algorithm_key="sft", task_key="sort")
    assert memory.batch(sft, replace(SIZES, answer=3)).length == 3


def test_a_large_batch_of_a_small_model_is_cut_as_the_engine_cuts_it():
    knobs = {"prompts_per_step": 32, "group_size": 64, "max_new_tokens": 64}
    spec, network = make(algorithm_key="grpo", task_key="sort", model="tiny", knobs=knobs), model()
    sizes = replace(SIZES, **vars(layers_of(network)), context=2048, held=[
        {"name": "policy", "parameters": network.num_parameters(), "learnt": network.num_parameters()}])
    room = room_of([network], [network], spec)
    deep = replace(sizes, layers=16)
    assert memory.batch(spec, sizes).prompts == at_once(network, memory.whole_batch(spec, sizes), room)
    assert passes.activations(deep, memory.batch(spec, deep), Mode()) <= room.size == passes.OF_SMALL
    assert (memory.batch(spec, deep).prompts, memory.batch(spec, sizes).prompts) == (4, 32), "groups stay whole"


def test_on_a_gpu_what_decoding_reads_stays_there(monkeypatch):
    monkeypatch.setattr(machine, "device_kind", lambda name: name)

    def found(device, shares=True):
        spec = make(algorithm_key="grpo", task_key="sort", knobs={"dtype": "bf16"}, device=device)
        return {part.name: part for part in memory.parts(spec, replace(SIZES, shares=shares))}
    on_cpu, on_gpu, alone = found("cpu"), found("cuda"), found("cuda", shares=False)
    assert (on_cpu["KV cache"].when, on_gpu["KV cache"].when) == (memory.SAMPLES, memory.ALWAYS)
    assert on_cpu["KV cache"].size == on_gpu["KV cache"].size > 0 == alone["KV cache"].size
    assert on_gpu["Weights in bf16"].size == 2 * on_cpu["Weights in bf16"].size > 0
    assert alone["Weights in bf16"] == on_cpu["Weights in bf16"]


def test_the_rows_are_those_of_what_is_held_and_the_largest_phase_counts():
    ppo = make(algorithm_key="ppo", task_key="sort", knobs={"dtype": "bf16"})
    found = {part.name: part for part in memory.parts(ppo, replace(SIZES, held=HELD))}
    assert (found["Critic"].size, found["Optimizer"].size, found["Gradients"].size) == (4040, 8 * 2010, 4 * 2010)
    assert (found["Weights in bf16"].size, found["Process"].size) == (2 * 1010, 48_000_000)
    assert found["Attention weights"].size and not found["Reward model"].size
    grpo = make(algorithm_key="grpo", task_key="sort")
    rows = memory.parts(grpo, SIZES)
    assert [(part.name, part.size) for part in rows if part.when == memory.DRAWS] == [
        ("Line of the update", 4000)]
    always = sum(part.size for part in rows if part.when == memory.ALWAYS)
    phases = [sum(part.size for part in rows if part.when == when) for when in memory.PHASES[1:]]
    assert memory.peak(rows) == always + max(phases) and phases[1] == max(phases)
    half = memory.parts(make(algorithm_key="reward_model", task_key="sort"), replace(SIZES, held=[
        HELD[0] | {"learnt": 0}, HELD[2] | {"name": "reward_model"}]))
    assert {part.name for part in half if not part.size} >= {"Logits", "Line of the update", "Weights before the step"}


def test_on_a_gpu_a_micro_batch_takes_what_the_run_leaves_of_the_card(monkeypatch):
    monkeypatch.setattr(machine, "device_kind", lambda name: "cuda")
    spec = make(algorithm_key="grpo", task_key="sort", knobs={"prompts_per_step": 64, "optimizer": "adamw_8bit"})
    large = replace(SIZES, layers=4000, keys=8, longest_packed=0, most_logits=1000)
    one = passes.activations(large, Batch(1, 8, 0, 5, 8), Mode("cuda"))
    held_bytes = 4 * 2000 + (4 + 4) * 1000 + 2 * 1000 + 2 * 4 * 1000 // 256
    card = int((10 * one + held_bytes + 1000 * 24 + 99) / 0.8 / 0.5)  # of which the run may take half
    assert memory.batch(spec, large, card).prompts == 10
    found = {part.name: part for part in memory.parts(spec, large, card)}
    assert found["Optimizer"].size == 2 * 1000 + 2 * 4 * 1000 // 256 and found["Activations"].size == 10 * one
    larger = ways.changed(spec, [("gpu_share", 1.0)])
    assert memory.batch(larger, large, card).prompts == passes.ON_GPU // one == 18, "a GPU is busy by then"
    assert found["Optimizer"].why.startswith("2 bytes") and found["Logits"].why.endswith(", in chunks")


def test_completions_that_wait_are_counted_and_no_weights_of_old_policies():
    """A batch of 3 × 2 completions of 4 tokens and prompts of 5: 6·4·13 + 3·5·9 = 447 bytes, for 2 steps and 3 more."""
    spec = make(algorithm_key="grpo", task_key="sort", knobs={"max_new_tokens": 4, "staleness": 2})
    assert memory.waiting(spec, DONE) == 2 * 447
    more = make(algorithm_key="grpo", task_key="sort", knobs={**spec.knobs, "replay_share": 0.5, "replay_steps": 3})
    assert memory.waiting(more, DONE) == 5 * 447
    assert memory.waiting(make(algorithm_key="grpo", task_key="sort"), DONE) == 0
