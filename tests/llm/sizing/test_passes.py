"""Which pass is taken for which shape, that its cost is what is counted, and the room that a run leaves on a GPU."""

from dataclasses import replace

import pytest

from labcore.catalog.llm.models import MODELS
from labcore.llm.sizing import passes
from labcore.llm.sizing.passes import Batch, Layers, Mode
from tests.every import every

LAYERS = Layers(layers=2, heads=2, hidden=8, queries=8, keys=4, inner=16, vocabulary=10, packs=True, own=False,
                fused=False, shares=True, plain_head=True, longest_packed=40, most_logits=2**26)
CARD = Mode("cuda", passes.HALF)
SHORT, ALONE = Batch(3, 2, 6, 5, 4), Batch(3, 1, 3, 5, 4)
# Two shapes of a model of 342 M on a GPU: completions longer than their prompts, and the other way round.
LARGE = replace(LAYERS, layers=24, hidden=1024, queries=1024, keys=1024, inner=2816)
ANSWERS, QUESTIONS = Batch(16, 8, 128, 100, 256), Batch(16, 8, 128, 1000, 100)


@every(("layers", "done", "mode", "expected"), [
    (LAYERS, SHORT, Mode(), "packed"), (LAYERS, ALONE, Mode(), "plain"),
    (replace(LAYERS, own=True), ALONE, Mode(), "packed"),
    (replace(LAYERS, packs=False), SHORT, Mode(), "shared"),
    (replace(LAYERS, packs=False, shares=False), SHORT, CARD, "plain"),
    (LARGE, ANSWERS, Mode(), "shared"), (LARGE, QUESTIONS, Mode(), "shared"),
    (LARGE, ANSWERS, CARD, "causal"), (LARGE, QUESTIONS, CARD, "shared"),
    (replace(LARGE, fused=True), QUESTIONS, CARD, "causal"),
    (replace(LARGE, fused=True), replace(QUESTIONS, group=64, length=20), CARD, "shared"),
    (LARGE, replace(ANSWERS, group=1), CARD, "causal"),
    (replace(LARGE, plain_head=False), ANSWERS, CARD, "shared"),
    (LARGE, QUESTIONS, replace(CARD, recomputed=True), "causal"), (LARGE, QUESTIONS, Mode(recomputed=True), "plain"),
    (LAYERS, SHORT, Mode(recomputed=True), "packed"),
    (LARGE, QUESTIONS, Mode(compiled=True), "causal"), (LAYERS, SHORT, Mode(compiled=True), "causal"),
    (replace(LAYERS, plain_head=False), SHORT, Mode(compiled=True), "packed")])
def test_the_way_of_each_shape(layers, done, mode, expected):
    assert passes.way(layers, done, mode) == expected


def test_costs_by_hand():
    """A prompt of 5 and two completions of 4: rows of 8 tokens, of which a shared prompt leaves 11 in all."""
    assert passes.cost(LAYERS, SHORT, "causal") == 6 * (6 * 8 * 8 + 8**2 / 2)
    assert passes.cost(LAYERS, SHORT, "shared") == 1.5 * 6 * 8 * 33 + 3 * 3 * (5**2 + 6 * 8)


def test_layers_that_are_computed_again_keep_their_input_and_one_of_them_all_with_its_gradients():
    of_token = 6 * 8 + 3 * 8 + 4 * 16 + 2 * 4
    assert passes.activations(LAYERS, SHORT, Mode(recomputed=True)) == 4 * 33 * (2 * 8 + 2 * of_token)
    assert passes.activations(LAYERS, SHORT, Mode()) == 4 * 33 * 2 * of_token
    assert passes.attention(LAYERS, SHORT, Mode(width=2, recomputed=True)) == 2 * 2 * 3 * 11**2
    spread = 6 * 8 + 3 * 8 + 4 * 16 + 2 * 8  # on a GPU keys and values are those of every head
    assert passes.activations(LAYERS, SHORT, Mode("cuda")) == 4 * 33 * 2 * spread


@pytest.mark.parametrize(("layers", "done", "mode", "rows", "row"), [
    (LAYERS, SHORT, Mode(width=2), 3, 11), (LAYERS, SHORT, Mode(), 0, 0), (LAYERS, SHORT, CARD, 0, 0),
    (replace(LAYERS, own=True), SHORT, Mode(width=2), 3, 11), (replace(LAYERS, own=True), SHORT, CARD, 0, 0),
    (replace(LAYERS, own=True), SHORT, Mode("cuda"), 0, 0),
    (LAYERS, ALONE, Mode("cuda"), 3, 8), (LAYERS, ALONE, CARD, 0, 0), (LAYERS, ALONE, Mode(), 0, 0),
    (replace(LAYERS, keys=8), ALONE, Mode("cuda"), 0, 0)])
def test_attention_weights_are_kept_where_no_fused_kernel_computes_attention(layers, done, mode, rows, row):
    """On a GPU torch's kernels for heads that share keys are those for bf16 without a mask; under one, keys are spread
    over the heads."""
    assert passes.attention(layers, done, mode) == mode.width * 2 * 2 * rows * row**2


def test_of_large_logits_a_chunk_is_held_beside_the_hidden_states():
    few = replace(LAYERS, most_logits=100)
    assert passes.logits(few, SHORT, Mode(), False) == 100 * 20 + 2 * 4 * 6 * 4 * 8
    assert passes.logits(replace(few, plain_head=False), SHORT, Mode(), False) == 6 * 4 * 10 * 20


def test_prompts_of_a_micro_batch():
    one = passes.activations(LAYERS, replace(SHORT, prompts=1), Mode())
    assert [passes.prompts_at_once(LAYERS, SHORT, Mode(), room) for room in (0, one, 3 * one - 1, 3 * one)] == [
        1, 1, 2, 3]
    whole = replace(LAYERS, plain_head=False, most_logits=2 * 2 * 4 * 10)
    assert passes.prompts_at_once(whole, SHORT, Mode(), 10**9) == 2


def test_each_formula_by_hand():
    assert (passes.weights(10), passes.gradients(10), passes.rounded(10)) == (40, 40, 20)
    assert passes.optimizer(256, "adamw") == 8 * 256
    assert passes.optimizer(256, "adamw_8bit") == 2 * 256 + 2 * 4, "a scale for each moment"


def test_room_on_a_card_is_what_the_run_leaves_of_it():
    mode, gib = passes.Mode("cuda", passes.HALF), 2**30
    there = passes.of_run(10**9, 5 * 10**8, "online", mode, "adamw")
    assert there == 4 * 10**9 + (4 + 8 + 4) * 5 * 10**8 + 2 * 10**9
    assert passes.of_run(10**9, 5 * 10**8, "online", mode, "adamw_8bit") == there - 5 * 10**8 * 6 + 5 * 10**8 // 32
    chunk = 2**26 * (2 + 4 * 5)
    assert passes.room(2**26, mode, 20 * gib, there) == int(0.8 * 20 * gib - there - chunk)
    assert passes.room(2**26, mode, 16 * gib, there) == int(0.05 * 16 * gib), "never none at all"
    assert passes.room(2**26, mode, 80 * gib, there) == passes.ON_GPU, "what keeps it busy, and no more"


def test_room_on_a_processor_is_by_what_the_run_holds_on_whatever_machine():
    found = [passes.room(2**26, passes.Mode(), None, held) for held in (0, 2**26, 2**26 + 1, 10**8, 2**29, 10**10)]
    assert found == [288 * 2**20, 2**29, 2**29 + 8, 8 * 10**8, 2**32, 2**32]


def test_64_completions_of_64_tokens_of_32_prompts_are_cut_and_a_default_batch_of_every_model_is_whole():
    def prompts_at_once(group, prompt, length, size):
        layers = passes.Layers(
            layers=size.layers, heads=size.heads, hidden=size.hidden, queries=size.hidden, keys=size.hidden,
            inner=size.intermediate, vocabulary=60, packs=True, own=True, fused=False, shares=True, plain_head=True,
            longest_packed=256, most_logits=2**26)
        done = passes.Batch(32, group, 32 * group, prompt, length)
        return passes.prompts_at_once(layers, done, passes.Mode(), passes.OF_SMALL)
    small = MODELS["small"]
    spread = 4 * 4 * (2 * 64 * 69 * 128 + (6 + 64 * 63) * (9 * 128 + 4 * 352))  # of a prompt and its completions
    assert prompts_at_once(64, 6, 64, small) == 288 * 2**20 // spread == 1
    assert all(prompts_at_once(8, 10, 8, size) >= 32 for size in MODELS.values())
    assert prompts_at_once(8, 10, 24, small) >= 32, "the preset of long completions"


def test_a_run_takes_its_share_of_a_gpu_and_leaves_what_vllm_has():
    card = 10**10
    assert passes.of_card(card, {}) == card // 2 and passes.of_card(card, {"gpu_share": 0.9}) == 9 * 10**9
    assert passes.of_card(card, {"gpu_share": 0.9, "rollouts": "vllm"}) == 7 * 10**9
