"""How fast this machine makes steps."""

import platform
from dataclasses import replace
from types import SimpleNamespace

import pytest

from labcore.llm.sizing import pace
from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import Record

MAZE = make(kind="maze", algorithm_key="q_learning", task_key="corridors", knobs={"pace": 0.0})


def test_a_setting_is_measured_in_the_time_that_it_may_take():
    job = pace.asked([MAZE, replace(MAZE, seed=3, steps=7)])
    assert len(job["specs"]) == 1 and job["seconds"] <= 3 and job["host"] == platform.node()
    assert job["made"]["code"], "other code is measured anew"
    (found,) = pace.pace({**job, "seconds": 0.2})["paces"]
    assert 0 < found["step"] < 1 and 0 <= found["once"] < 3
    assert pace.pace({**job, "seconds": 0.0})["paces"] == [None], "no time is left"


@pytest.mark.parametrize("algorithm, task, knobs, evaluated, expected", [
    ("q_learning", "corridors", {}, "", {"once": 1.5, "step": 0.5}),
    # The third of four steps is an evaluation: 2 s more, at every tenth step of the run. 512 pairs are 4 × 128.
    ("dpo", "sort", {"eval_every": 10, "pair_prompts": 512}, "3", {"once": 4 * 1.3, "step": 0.5 + 2 / 10}),
    ("dpo", "sort", {"eval_every": 10, "pair_prompts": 64}, "234", {"once": 0.0 + 1 * (2 - 7 / 6), "step": 7 / 6})])
def test_a_pace_worked_by_hand(algorithm, task, knobs, evaluated, expected, monkeypatch):
    """The session begins at 1 s; the first record is there at 3 s, the others each after ½ s, the third after 2½ s."""
    spec = make(kind="maze" if task == "corridors" else "llm", algorithm_key=algorithm, task_key=task, knobs=knobs)
    ends = [3.0, 3.5, 6.0, 6.5] if evaluated else [3.0, 3.5, 4.0, 4.5]
    made = [(end, Record(number, 0, {"exact_match": 1.0} if str(number) in evaluated else {}))
            for number, end in enumerate(ends, 1)]
    monkeypatch.setattr(pace, "_records", lambda session, until: made)
    monkeypatch.setattr(pace, "perf_counter", lambda: 1.0)
    monkeypatch.setattr(pace, "resolve_name", lambda name: SimpleNamespace(start=lambda spec, folder: None))
    (found,) = pace.pace({**pace.asked([spec]), "seconds": 2.0})["paces"]
    assert found == pytest.approx(expected)


def test_before_the_first_step_nothing_takes_less_than_no_time(monkeypatch):
    """A first step that is faster than the others: nothing was made once."""
    monkeypatch.setattr(pace, "_records", lambda session, until: [(1.1, Record(1, 0, {})), (2.1, Record(2, 0, {}))])
    monkeypatch.setattr(pace, "perf_counter", lambda: 1.0)
    (found,) = pace.pace({**pace.asked([MAZE]), "seconds": 2.0})["paces"]
    assert found == pytest.approx({"once": 0.0, "step": 1.0})


def test_coefficients_of_a_loss_cost_nothing_and_larger_batches_do():
    def setting(**knobs):
        return pace.setting(make(algorithm_key="grpo", task_key="sort", knobs=knobs))

    assert setting() == setting(beta=0.3, learning_rate=1e-4)
    assert setting() != setting(group_size=16) and setting() != setting(updates_per_batch=1)
    assert setting() != setting(top_entropy_share=0.2), "which tokens these are takes a pass of its own"
