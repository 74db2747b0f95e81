"""Whether a run fits into the memory."""

from dataclasses import replace

import pytest

from labcore import machine
from labcore.catalog.metrics import METRICS
from labcore.llm.sizing import memory, passes, ways
from labcore.llm.sizing.memory import Estimate, Sizes
from labcore.runs.spec import eight_bit
from labcore.runs.spec.run_spec import make

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


def test_close_and_unknown_are_said_as_what_they_are():
    need = Estimate(make(algorithm_key="grpo", task_key="sort"), SIZES, 10**9)
    assert need.verdict().startswith("It fits: it needs about ") and need.advice() == ""
    assert replace(need, free=int(1.1 * need.peak)).verdict().startswith("It may not fit: ")
    unknown = replace(need, free=None)
    assert unknown.verdict().endswith("cannot be found out.") and ways.with_ways(unknown) == unknown
    assert memory.estimate(need.spec, "no such model").fault == "no such model"


def test_a_mixture_has_the_caches_of_two_models():
    def cache(advantage: str) -> int:
        spec = make(algorithm_key="nash_md", task_key="sort", mix="mine", knobs={"advantage": advantage})
        return next(part.size for part in memory.parts(spec, SIZES) if part.name == "KV cache")
    assert cache("win_probability") == 2 * cache("batch_mean") > 0


def test_the_fold_and_the_metric_say_what_each_of_them_counts():
    assert "adds to a worker process of about 330 MB" in memory.ABOUT
    assert METRICS["memory"].help.startswith("Resident memory of the whole worker process")
