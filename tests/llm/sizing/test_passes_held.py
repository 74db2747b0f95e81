"""What a run holds whatever its batch is, and the room that this leaves on a GPU."""

from __future__ import annotations

from labcore.catalog.llm.models import MODELS
from labcore.llm.sizing import passes


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
