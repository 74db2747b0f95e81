"""How long a step takes, by hand, and what is proposed where that is long."""

from dataclasses import replace

import pytest

from labcore import machine
from labcore.llm.sizing import step_time
from labcore.llm.sizing.step_time import OTHER
from labcore.runs.spec.run_spec import make
from tests.llm.sizing.test_memory import HELD, SIZES

# 1 row takes 10 ms a layer and 20 ms the head, 4 rows twice that, 8 rows four times.
SPEED = {"rows": [1, 4, 8], "layer": [0.01, 0.02, 0.04], "head": [0.02, 0.04, 0.08]}
SMALL = {"prompts_per_step": 2, "group_size": 2, "max_new_tokens": 8, "updates_per_batch": 1}


@pytest.fixture(autouse=True)
def on_a_processor(monkeypatch):
    monkeypatch.setattr(machine, "device_kind", lambda name: "cpu")
    monkeypatch.setattr(machine, "free_memory", lambda name: 10**9)


def grpo(**knobs):
    return make(algorithm_key="grpo", task_key="sort", steps=10, knobs=SMALL | knobs)


def test_a_step_is_its_sampling_and_its_passes():
    """2 prompts of 5 tokens, 2 completions of 8 each; 2 layers. A token of many takes 5 ms a layer, 10 ms the head."""
    cache = 4 * 2 * 4 * 2 * (5 + 8 / 2) / (10 * 8 / 0.02)  # numbers of keys and values that a row reads
    sampling = 2 * 5 * 2 * 0.005 + 8 * (2 * 0.02 + 0.04 + cache)
    a_pass = 2 * (5 + 2 * 7) * 2 * 0.005 + 4 * 8 * 0.01  # packed rows, and logits of the completions
    found = step_time.seconds(grpo(), SIZES, SPEED)
    assert found == pytest.approx(OTHER * (sampling + (3 + 1) * a_pass))  # learning thrice, the reference once
    twice = step_time.seconds(grpo(updates_per_batch=2), SIZES, SPEED)
    assert twice - found == pytest.approx(OTHER * 3 * a_pass)
    frozen = step_time.seconds(grpo(lora_rank=8), SIZES, SPEED)
    assert found - frozen == pytest.approx(OTHER * a_pass)


def test_a_run_that_teaches_itself_has_a_pass_of_its_reference_and_one_for_each_update_by_the_single_step_term():
    def took(**knobs) -> float:
        spec = make(algorithm_key="sdft", task_key="sort", steps=10, knobs={
            "prompts_per_step": 2, "group_size": 2, "max_new_tokens": 8, **knobs})
        return step_time.seconds(spec, SIZES, SPEED)
    a_pass = OTHER * (2 * (5 + 2 * 7) * 2 * 0.005 + 4 * 8 * 0.01)
    plain = step_time.seconds(grpo(), SIZES, SPEED)
    assert took(single_step=False) - plain == pytest.approx(a_pass)
    assert took(single_step=True) - plain == pytest.approx(2 * a_pass)


def test_what_completions_are_compared_with_is_drawn_too():
    def took(advantage: str) -> float:
        spec = make(algorithm_key="nash_md", task_key="sort", steps=10, mix="mine",
                    knobs={**SMALL, "advantage": advantage})
        return step_time.seconds(spec, SIZES, SPEED)
    whole = step_time.whole_batch(grpo(), SIZES)
    drawn = OTHER * step_time.sampling(SIZES, whole, SPEED)
    assert took("win_probability") - took("group_mean") == pytest.approx(2 * drawn), "by two models"
    greedy = OTHER * step_time.sampling(SIZES, replace(whole, group=1, sampled=2), SPEED)
    assert took("greedy_baseline") - took("group_mean") == pytest.approx(greedy)


def test_mini_batches_see_the_same_tokens():
    assert step_time.seconds(grpo(mini_batches=2), SIZES, SPEED) == pytest.approx(
        step_time.seconds(grpo(), SIZES, SPEED))


@pytest.mark.parametrize("rows, seconds", [(1, 0.01), (0.5, 0.01), (2.5, 0.015), (8, 0.04), (16, 0.08)])
def test_rows_between_those_measured(rows, seconds):
    assert step_time._at(rows, SPEED["rows"], SPEED["layer"]) == pytest.approx(seconds)


def test_only_what_is_slow_or_large_is_told_what_saves():
    slow = {**SPEED, "layer": [20 * each for each in SPEED["layer"]]}
    assert step_time.lighter(grpo(), SIZES, SIZES, SPEED) == []
    lora = replace(SIZES, held=[HELD[0] | {"learnt": 10}])
    found = step_time.lighter(spec := grpo(group_size=4), SIZES, lora, slow)
    now = step_time.need(spec, SIZES, slow)
    assert now.seconds > step_time.SLOW
    assert [each.options for each in found] == ["--set lora_rank=16", "--set max_new_tokens=4", "--set group_size=2",
                                                "--set prompts_per_step=1"]
    assert all(each.need.seconds < step_time.SAVES * now.seconds for each in found)
    assert "lora_rank" not in str([each.way for each in step_time.lighter(spec, SIZES, None, slow)])


def test_where_one_setting_is_not_enough_the_first_of_all_together_is_one_that_is():
    slow = SPEED | {key: [0.1 * each for each in SPEED[key]] for key in ("layer", "head")}
    lora = replace(SIZES, held=[HELD[0] | {"learnt": 10}])
    spec = grpo(group_size=8, prompts_per_step=8, max_new_tokens=256)
    first, *rest = step_time.lighter(spec, SIZES, lora, slow)
    assert all(each.need.seconds > step_time.SLOW for each in rest) and rest
    assert first.need.seconds <= step_time.SLOW and first.way[:2] == (("lora_rank", 16), ("max_new_tokens", 64))
    assert dict(first.way)["prompts_per_step"] < 8
    other = step_time.changed(spec, first.way)
    assert step_time.lighter(other, lora, lora, slow) == [], "pressed once, it is done"


def test_what_may_not_fit_is_told_what_needs_less(monkeypatch):
    large = replace(SIZES, layers=40, hidden=512, inner=2048, vocabulary=1000, longest_packed=10_000)
    monkeypatch.setattr(machine, "free_memory", lambda name: 10**7)
    quick = {**SPEED, "layer": [1e-6] * 3, "head": [1e-6] * 3}
    found = step_time.lighter(spec := grpo(prompts_per_step=8, group_size=8), large, None, quick)
    now = step_time.need(spec, large, quick)
    assert now.fits is False and now.seconds < step_time.SLOW and found
    assert all(each.need.bytes <= step_time.SAVES * now.bytes or each.need.seconds <= step_time.SAVES * now.seconds
               for each in found)


def test_models_of_the_lab_and_those_that_are_not_here_are_not_asked_for(tmp_path, monkeypatch):
    spec = grpo()
    assert not step_time.asks(spec)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert not step_time.asks(replace(spec, model="somebody/something-that-nobody-has"))
    assert step_time.asks(replace(spec, model=str(tmp_path)))
