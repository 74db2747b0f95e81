"""The settings that are advised where a run does not fit into the memory."""

from dataclasses import replace

import pytest

from labcore import machine
from labcore.llm.sizing import ways
from labcore.llm.sizing.memory import Estimate
from labcore.runs.spec import eight_bit
from labcore.runs.spec.run_spec import make
from tests.llm.sizing.test_memory import HELD, SIZES
from tests.llm.sizing.test_memory import on_a_processor as on_a_processor
from tests.words import says


def test_a_run_that_does_not_fit_is_told_what_makes_it_fit():
    spec = make(algorithm_key="grpo", task_key="sort", model="medium", knobs={"max_new_tokens": 32})
    sizes = replace(SIZES, layers=40, hidden=512, inner=2048, longest_packed=10_000)
    need = Estimate(spec, sizes, free=22 * 10**8)
    assert need.sure is False and says(need.verdict(), "does not fit", f"{need.peak / 1e9:.1f} GB", "2.2 GB")
    small, lora = replace(SIZES), replace(sizes, held=[HELD[0] | {"learnt": 10}])
    found = [vars(lora), "no such model", vars(small)]
    assert [*map(dict, ways.others(spec))] == [{"lora_rank": 8}, {"model": "small"}, {"model": "tiny"}]
    told = ways.with_ways(need, found)
    settings = [*map(dict, told.ways)]
    assert [[*way] for way in settings] == [["gradient_checkpointing"], ["prompts_per_step"], ["max_new_tokens"]]
    assert Estimate(ways.changed(spec, told.ways[0]), sizes, need.free).sure
    for way in told.ways[1:]:
        assert Estimate(ways.changed(spec, way), sizes, need.free).sure
        doubled = [(key, 2 * value) for key, value in way]
        assert not Estimate(ways.changed(spec, doubled), sizes, need.free).sure, "not smaller than it has to be"
    prompts, length = settings[1]["prompts_per_step"], settings[2]["max_new_tokens"]
    assert says(told.advice(), "gradient_checkpointing", "on", f"prompts_per_step to {prompts}",
                f"max_new_tokens to {length}")
    none = ways.with_ways(replace(need, free=1000), found)
    assert none.ways == [] and none.advice().startswith("No smaller batch makes it fit")
    little = ways.with_ways(replace(need, free=160_000_000))
    assert len(little.ways) == 1 and len(little.ways[0]) > 1 and " and " in little.advice(), "several knobs together"


def test_where_the_moments_are_most_of_it_8_bits_are_advised_and_else_both_with_a_smaller_batch():
    need = of_many_moments()
    spec, heavy = need.spec, need.sizes
    saved = replace(need, spec=ways.changed(spec, (("optimizer", "adamw_8bit"),)))
    assert need.peak - saved.peak == pytest.approx(1.15 * (8 - 2 - 1 / 32) * 10**8, rel=1e-6)
    assert ways.with_ways(need).ways == [(("optimizer", "adamw_8bit"),)]
    deep = replace(heavy, layers=400, hidden=256)
    both = replace(need, sizes=deep, spec=ways.changed(spec, ways.ENGINE))
    told = ways.with_ways(replace(need, sizes=deep, free=int(1.31 * both.peak)))
    assert told.ways == [ways.ENGINE]
    assert says(told.advice(), "gradient_checkpointing to on", "optimizer to adamw_8bit")
    told = ways.with_ways(replace(need, sizes=deep, free=int(1.25 * both.peak)))
    assert [each[:2] for each in told.ways] == [ways.ENGINE] and dict(told.ways[0])["sequences_per_step"] < 64


def of_many_moments() -> Estimate:
    """A run that fits with its moments in 8 bits and not with those in 32."""
    spec = make(algorithm_key="sft", task_key="sort", model="tiny", knobs={"sequences_per_step": 64})
    need = Estimate(spec, replace(SIZES, held=[HELD[0] | {"parameters": 10**8, "learnt": 10**8}], most_copied=0))
    saved = replace(need, spec=ways.changed(spec, (("optimizer", "adamw_8bit"),)))
    return replace(need, free=int(1.31 * saved.peak))


def test_8_bits_are_advised_with_how_to_install_them(monkeypatch):
    need = ways.with_ways(of_many_moments())
    assert says(need.advice(), "make it fit", "optimizer to adamw_8bit")
    monkeypatch.setattr(eight_bit, "missing", lambda: True)
    assert says(need.advice(), "set optimizer to adamw_8bit", "pip install -r requirements-8bit.txt")


def test_8_bits_are_not_advised_where_the_device_cannot_use_them(monkeypatch):
    monkeypatch.setattr(machine, "device_kind", lambda name: "mps")
    need = ways.with_ways(of_many_moments())
    assert not any("optimizer" in dict(way) for way in need.ways)
    assert "does not work on the device mps" in eight_bit.fault(
        ways.changed(need.spec, (("optimizer", "adamw_8bit"),)))
