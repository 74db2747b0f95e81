"""Whether a run fits into the memory, and what is advised where it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from labcore import machine
from labcore.catalog.metrics import METRICS
from labcore.llm.sizing import memory, passes
from labcore.llm.sizing.memory import Estimate, Sizes
from labcore.runs.spec import eight_bit
from labcore.runs.spec.run_spec import make
from tests.words import says

HELD = [{"name": "policy", "parameters": 1000, "learnt": 1000}, {"name": "reference", "parameters": 1000, "learnt": 0}]
SIZES = Sizes(held=HELD, layers=2, heads=2, hidden=8, queries=8, keys=4, inner=16, vocabulary=10, context=64,
              prompt=5, answer=0, packs=True, own=True, fused=False, shares=True, plain_head=True, longest_packed=40,
              most_logits=2**26, most_copied=10**6, sampled_at_once=64)


@pytest.fixture(autouse=True)
def on_a_processor(monkeypatch):
    monkeypatch.setattr(machine, "device_kind", lambda name: "cpu")
    monkeypatch.setattr(machine, "free_memory", lambda name: 10**9)
    monkeypatch.setattr(eight_bit, "missing", lambda: False)
    monkeypatch.setattr(passes, "OF_SMALL", passes.ON_PROCESSOR)  # so that small sizes need as much as large ones


def test_a_run_that_does_not_fit_is_told_what_makes_it_fit():
    spec = make(algorithm_key="grpo", task_key="sort", model="medium", knobs={"max_new_tokens": 32})
    sizes = replace(SIZES, layers=40, hidden=512, inner=2048, longest_packed=10_000)
    need = Estimate(spec, sizes, free=22 * 10**8)
    assert need.sure is False and says(need.verdict(), "does not fit", f"{need.peak / 1e9:.1f} GB", "2.2 GB")
    small, lora = replace(SIZES), replace(sizes, held=[HELD[0] | {"learnt": 10}])
    found = [vars(lora), "no such model", vars(small)]
    assert [*map(dict, memory.others(spec))] == [{"lora_rank": 8}, {"model": "small"}, {"model": "tiny"}]
    told = memory.with_ways(need, found)
    ways = [*map(dict, told.ways)]
    assert [[*way] for way in ways] == [["gradient_checkpointing"], ["prompts_per_step"], ["max_new_tokens"]]
    assert Estimate(memory.changed(spec, told.ways[0]), sizes, need.free).sure
    for way in told.ways[1:]:
        assert Estimate(memory.changed(spec, way), sizes, need.free).sure
        doubled = [(key, 2 * value) for key, value in way]
        assert not Estimate(memory.changed(spec, doubled), sizes, need.free).sure, "not smaller than it has to be"
    assert told.advice() == (f"To make it fit, set gradient_checkpointing to on, or prompts_per_step to "
                             f"{ways[1]['prompts_per_step']}, or max_new_tokens to {ways[2]['max_new_tokens']}.")
    none = memory.with_ways(replace(need, free=1000), found)
    assert none.ways == [] and none.advice().startswith("No smaller batch makes it fit")
    little = memory.with_ways(replace(need, free=160_000_000))
    assert len(little.ways) == 1 and len(little.ways[0]) > 1 and " and " in little.advice(), "several knobs together"


def test_where_the_moments_are_most_of_it_8_bits_are_advised_and_else_both_with_a_smaller_batch():
    need = of_many_moments()
    spec, heavy = need.spec, need.sizes
    saved = replace(need, spec=memory.changed(spec, (("optimizer", "adamw_8bit"),)))
    assert need.peak - saved.peak == pytest.approx(1.15 * (8 - 2 - 1 / 32) * 10**8, rel=1e-6)
    assert memory.with_ways(need).ways == [(("optimizer", "adamw_8bit"),)]
    deep = replace(heavy, layers=400, hidden=256)
    both = replace(need, sizes=deep, spec=memory.changed(spec, memory.ENGINE))
    told = memory.with_ways(replace(need, sizes=deep, free=int(1.31 * both.peak)))
    assert told.ways == [memory.ENGINE]
    assert says(told.advice(), "gradient_checkpointing to on", "optimizer to adamw_8bit")
    told = memory.with_ways(replace(need, sizes=deep, free=int(1.25 * both.peak)))
    assert [each[:2] for each in told.ways] == [memory.ENGINE] and dict(told.ways[0])["sequences_per_step"] < 64


def of_many_moments() -> Estimate:
    """A run that fits with its moments in 8 bits and not with those in 32."""
    spec = make(algorithm_key="sft", task_key="sort", model="tiny", knobs={"sequences_per_step": 64})
    need = Estimate(spec, replace(SIZES, held=[HELD[0] | {"parameters": 10**8, "learnt": 10**8}], most_copied=0))
    saved = replace(need, spec=memory.changed(spec, (("optimizer", "adamw_8bit"),)))
    return replace(need, free=int(1.31 * saved.peak))


def test_8_bits_are_advised_with_how_to_install_them(monkeypatch):
    need = memory.with_ways(of_many_moments())
    assert says(need.advice(), "make it fit", "optimizer to adamw_8bit")
    monkeypatch.setattr(eight_bit, "missing", lambda: True)
    assert says(need.advice(), "set optimizer to adamw_8bit", "pip install -r requirements-8bit.txt")


def test_8_bits_are_not_advised_where_the_device_cannot_use_them(monkeypatch):
    monkeypatch.setattr(machine, "device_kind", lambda name: "mps")
    need = memory.with_ways(of_many_moments())
    assert not any("optimizer" in dict(way) for way in need.ways)
    assert "does not work on the device mps" in eight_bit.fault(
        memory.changed(need.spec, (("optimizer", "adamw_8bit"),)))


def test_close_and_unknown_are_said_as_what_they_are():
    need = Estimate(make(algorithm_key="grpo", task_key="sort"), SIZES, 10**9)
    assert need.verdict().startswith("It fits: it needs about ") and need.advice() == ""
    assert replace(need, free=int(1.1 * need.peak)).verdict().startswith("It may not fit: ")
    unknown = replace(need, free=None)
    assert unknown.verdict().endswith("cannot be found out.") and memory.with_ways(unknown) == unknown
    assert memory.estimate(need.spec, "no such model").fault == "no such model"


def test_the_fold_and_the_metric_say_what_each_of_them_counts():
    assert "adds to a worker process of about 330 MB" in memory.ABOUT
    assert METRICS["memory"].help.startswith("Resident memory of the whole worker process")
