"""Which pass is taken for which shape, and that its cost is what is counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

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
