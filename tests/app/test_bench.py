"""The tab of the estimator bench: what is asked, what a link holds, and what the figures say."""

import pytest

from app.exact import bench_charts as charts
from app.exact.bench import VALUES, WITH, Bench, _csv, lacking, read
from labcore.catalog import kinds
from labcore.llm.sizing import bench
from labcore.runs.spec.run_spec import make
from labcore.runs.store.store import Store
from tests.app.asking import Answering
from tests.app.seeding import html, link, ran


def row(label, value=None, biased=False, turns=False, **changes):
    numbers = {name: [0.25, 0.2, 0.35] for name in bench.INTERVALS}
    return {"algorithm": label.lower(), "label": label, "loop": "online", "value": value, "samples": 32.0, "truth": 0.4,
            "reasons": ["Scale: shorter."] if biased else [], "biased": biased, "turns": turns, **numbers, **changes}


def found(knob="", rows=()):
    return {"knob": knob, "batches": 50, "task": "sorted", "model": "table", "critic": "untrained", "progress": 0.3,
            "seed": 0, "reward": 0.5, "reward_before": 0.3, "reward_best": 1.0, "completions": 40,
            "rows": [*rows] or [row("RLOO"), row("GRPO", biased=True, turns=True)]}


def test_nothing_is_measured_before_the_button_and_a_link_brings_it_back(page, lab):
    asked = Answering(lab.launcher, lambda spec: found())
    store: Store = lab.store
    run = store.create(make(kind="exact", algorithm_key="grpo", task_key="one_winner"), mine=True)
    store.set_state(run, "running")
    store.set_state(run, "finished")
    test = page("exact", run=run, tab="Estimator bench")
    assert not asked.asked and test.multiselect[0].value[0] == "grpo"
    frozen = "trained by exact gradient ascent 30 % of the way to the best reward, then frozen."
    assert any(frozen in each.value for each in test.caption)
    test.multiselect[0].set_value(["rloo", "grpo"])
    next(each for each in test.selectbox if each.label == "Batches per row").set_value(50)
    next(each for each in test.button if each.label == "Measure").click()
    ran(test)
    spec, = asked.asked
    assert spec["algorithms"] == ["rloo", "grpo"] and (spec["task"], spec["batches"]) == ("one_winner", 50)
    assert spec["knobs"] == {"vocabulary": 3, "prompt_count": 3, "max_new_tokens": 3}
    assert sum(frozen in each.value for each in test.caption) == 2  # above the form, and with the numbers
    assert any(f"{frozen} Its reward is 0.500; that of its start" in each.value for each in test.caption)
    assert "other direction" in html(test) and "no bias found" in html(test) and "Scale: shorter." in html(test)
    assert link(test)["bench"] == "algorithms=rloo,grpo;batches=50"
    again = page("exact", **link(test))
    assert len(asked.asked) == 1 and again.multiselect[0].value == ["rloo", "grpo"]


def test_a_link_that_cannot_be_is_said_and_what_lacks_a_knob_is_not_measured(page, lab):
    asked = Answering(lab.launcher, lambda spec: found())
    run = lab.store.create(make(kind="exact", algorithm_key="grpo", task_key="sorted"), mine=True)
    lab.store.set_state(run, "running")
    lab.store.set_state(run, "finished")
    test = page("exact", run=run, tab="Estimator bench", bench="algorithms=rloo,ppo;knob=gae_lambda;batches=7")
    assert any("batches" in each.value for each in test.warning)
    assert any("RLOO has no knob gae_lambda" in each.value for each in test.info) and not asked.asked


def test_the_values_that_are_offered_are_such_as_the_knobs_take():
    whole = make(kind="exact", algorithm_key="grpo", task_key="sorted")
    for knob, values in VALUES.items():
        rows = [key for key in kinds.kind("exact").algorithms if not lacking([key], knob, whole)]
        for value in values:
            given = {knob: value, **WITH.get(knob, {})}
            assert make(kind="exact", algorithm_key=rows[0], task_key="sorted", knobs=given).knobs[knob] == value


def test_a_link_is_read_as_it_was_written():
    asked = Bench(("rloo", "ppo"), "beta", 200, "exact")
    assert read(asked.to_text()) == (asked, []) and read("") == (Bench(), [])
    assert [fault.key for fault in read("algorithms=rloo;shoe=3")[1]] == ["shoe"]


@pytest.mark.parametrize("knob", ["", "group_size"])
def test_the_figures_show_values_and_their_intervals(knob):
    values = [2, 4] if knob else [None]
    rows = [row(label, value) for label in ("RLOO", "GRPO") for value in values]
    for key, title, unit, ideal in charts.PANELS:
        drawn = charts.figure(found(knob, rows), key, unit, ideal, "light")
        first = drawn.data[0]
        bars, axis = (first.error_y, first.y) if knob else (first.error_x, first.x)
        assert axis[0] == 0.25 and bars.array[0] == pytest.approx(0.1) and bars.arrayminus[0] == pytest.approx(0.05)
        assert len(drawn.data) == 2 and bool(drawn.layout.shapes) == (ideal is not None)
        assert f"{title} of each row: RLOO" in charts.words(found(knob, rows), key, title)


def test_a_row_without_a_gradient_stays_in_the_table():
    bare = {**row("RLOO"), "fault": "The exact gradient is 0 here."} | dict.fromkeys(bench.INTERVALS, None)
    assert "no gradient" in charts.table(found(rows=[bare])) and "–" in charts.table(found(rows=[bare]))
    assert b"no gradient" in _csv(bench.records(found(rows=[bare])))
    assert not charts.figure(found(rows=[bare]), "bias", "x", 0.0, "dark").data[0].x
