"""What a run holds whatever its batch is, and the room that this leaves on a GPU."""

from __future__ import annotations

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
    assert passes.room(2**26, passes.Mode(), 80 * gib, there) == 2**32, "on a processor always the same"


def test_a_run_takes_its_share_of_a_gpu_and_leaves_what_vllm_has():
    card = 10**10
    assert passes.of_card(card, {}) == card // 2 and passes.of_card(card, {"gpu_share": 0.9}) == 9 * 10**9
    assert passes.of_card(card, {"gpu_share": 0.9, "rollouts": "vllm"}) == 7 * 10**9
