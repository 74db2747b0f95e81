"""Comparisons started from the page: which runs they have, and what the form says before."""

import platform
import re
from dataclasses import replace

import pytest

from app.compare.launch import planning
from labcore.analysis import time_left
from labcore.catalog import kinds
from labcore.errors import LabError
from labcore.llm.sizing import pace
from labcore.runs import halving, sweep
from labcore.runs.files import bases
from labcore.runs.halving import Halving
from labcore.runs.spec.run_spec import base_spec, knobs_of, make
from tests.app.asking import Answering
from tests.app.seeding import ran, seed
from tests.every import now
from tests.words import says


def knob(key, algorithm="grpo", kind="llm"):
    row = kinds.algorithm(algorithm, kind)
    return next(each for each in knobs_of(row, kinds.task(kinds.kind(kind).task, kind)) if each.key == key)


def button(test, label):
    return next(each for each in test.button if each.label.startswith(label))


def test_values_are_read_as_they_are_written():
    beta = knob("beta")
    assert planning.values_in(beta, " 0, 0.02;0.1 ") == [0.0, 0.02, 0.1]
    assert planning.values_in(beta, planning.written([0.0, 1e-05])) == [0.0, 1e-05]
    for text, said in (("", "no values of β"), ("0.1, 0.1", "twice"), ("a", "must be a number"), ("-1", "bounds")):
        with pytest.raises(LabError, match=said):
            planning.values_in(beta, text)


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_every_knob_has_values_to_start_from_with_its_default_among_them(kind):
    for row in kinds.kind(kind).algorithms.values():
        for each in knobs_of(row, kinds.task(kinds.kind(kind).task, kind)):
            if each.type is str and not each.choices:  # free text: the form does not offer it
                continue
            values = planning.suggested(each)
            assert [each.check(value) for value in values] == values == planning.values_in(
                each, planning.written(values)) or each.type is str
            assert each.default in values or each.choices


def test_the_default_replaces_its_neighbour_on_the_knobs_own_scale():
    assert planning.suggested(knob("beta")) == [0.0, 0.04, 0.1, 0.15, 0.2]
    assert planning.suggested(knob("beta", "rloo")) == [0.0, 0.02, 0.1, 0.15, 0.2], "no price at all is worth a try"
    assert planning.suggested(knob("beta", "dpo")) == [0.05, 0.2, 1.0, 2.0, 5.0]


def test_five_algorithms_with_three_seeds_are_one_click_from_the_same_base(page, lab):
    test = page("compare")
    button(test, "Start 15 runs").click()
    ran(test)
    (started,) = sweep.sweeps(lab.store)
    assert started.id in test.query_params["sweep"]
    specs = [run.spec for run in started.runs]
    assert [(spec.seed, spec.algorithm) for spec in specs] == [
        (seed, key) for seed in range(3) for key in ("ppo", "grpo", "rloo", "reinforce", "dpo")]
    assert len({base_spec(spec).hash() for spec in specs}) == 1
    for spec in specs:
        assert spec == make(algorithm_key=spec.algorithm, task_key="sort", seed=spec.seed)
    assert lab.launcher.woken


def test_a_knob_of_the_task_counts_for_all_algorithms_wherever_it_is_moved(page, lab):
    test = page("compare")
    test.session_state["launch-llm:knobs"] = True
    next(each for each in ran(test).slider if each.label == "Letters").set_value(8)
    assert next(each for each in ran(test).slider if each.label == "Letters").value == 8
    button(test, "Start 15 runs").click()
    assert {run.spec.knobs["letters"] for run in ran(test) and lab.store.runs()} == {8}


def test_a_sweep_has_its_values_and_seeds_and_says_what_is_wrong(page, lab):
    test = page("compare")
    ways = next(each for each in test.segmented_control if each.label == "Compare")
    ways.set_value("sweep")
    ran(test)
    values = next(box for box in test.text_input if box.label == "Values of β")
    values.set_value("0, x")
    ran(test)
    assert any("KL coefficient β must be a number, not 'x'" in warning.value for warning in test.warning)
    assert button(test, "Start").disabled
    next(box for box in test.text_input if box.label == "Values of β").set_value("0, 0.1")
    next(box for box in test.number_input if box.label == "Seeds").set_value(2)
    ran(test)
    button(test, "Start 4 runs").click()
    ran(test)
    (started,) = sweep.sweeps(lab.store)
    assert (started.axes, started.seeds) == ({"beta": [0.0, 0.1]}, [0, 1])
    assert {run.spec.algorithm for run in started.runs} == {"grpo"}


def number(test, label):
    return next(each for each in test.number_input if each.label == label)


def stopping(test):
    """The form's choice of early stopping."""
    return next(each for each in test.segmented_control if each.label == "Early stopping")


def test_a_sweep_can_be_stopped_early_and_its_page_says_how(page, lab, monkeypatch):
    monkeypatch.setattr(halving, "find_spec", lambda name: name)
    test = page("compare")
    assert not any(each.label == "Early stopping" for each in test.segmented_control)
    next(each for each in test.segmented_control if each.label == "Compare").set_value("sweep")
    ran(test)
    stopping(test).set_value(True)
    ran(test)
    assert number(test, "Reduction factor").value == 3
    number(test, "Earliest step").set_value(4)
    number(test, "Steps").set_value(3)
    ran(test)
    assert any("begins after 4 steps, and the runs have 3" in each.value for each in test.warning)
    number(test, "Steps").set_value(40)
    ran(test)
    button(test, "Start 15 runs").click()
    ran(test)
    (started,) = sweep.sweeps(lab.store)
    assert sweep.early_stopping(lab.store, started.id) == Halving("reward", 4, 3)
    assert any("Successive halving by reward: after 4 steps" in each.value for each in test.caption)
    assert not any("is off" in each.value for each in test.warning)
    lab.store.set_unjudged([started.id], "Optuna is not installed: run pip install -r requirements-sweeps.txt")
    ran(test)
    assert any(says(each.value, "Early stopping is off", "Optuna is not installed", "pip") for each in test.warning)


def test_without_optuna_nothing_is_started_and_the_form_says_what_to_install(page, lab, monkeypatch):
    monkeypatch.setattr(halving, "find_spec", lambda name: None)
    test = page("compare", new='{"early":{"factor":3,"metric":"reward","min_steps":4},"way":"sweep"}')
    assert button(test, "Start").disabled
    assert any("pip install -r requirements-sweeps.txt" in each.value for each in test.warning)


@pytest.mark.parametrize("early", ['{}', '{"factor":3,"metric":"reward","min_steps":0}', '[]', '3',
                                   '{"factor":1,"metric":"reward","min_steps":4}',
                                   '{"factor":3,"metric":"x","min_steps":4}'])
def test_a_link_with_an_early_stopping_that_there_is_not_is_told(early):
    with pytest.raises(LabError, match="cannot be read"):
        planning.of_link(f'{{"early":{early},"way":"sweep"}}')


def test_what_runs_take_is_estimated_from_earlier_ones_of_this_machine(lab, monkeypatch):
    seed(lab.store, "finished", steps=6)  # half a second a step
    spec = make(algorithm_key="grpo", task_key="sort", steps=10)
    other = make(algorithm_key="rloo", task_key="sort", steps=10)
    known, each = time_left.earlier(lab.store.runs("finished")), 5 + time_left.PER_RUN
    assert time_left.estimate([spec, spec, other], known, {}, 2).unknown == ("RLOO",)
    assert time_left.estimate([spec] * 5, known, {}, 2).seconds == pytest.approx(3 * each), "two at a time: 3 rounds"
    faster = make(algorithm_key="grpo", task_key="sort", steps=10, knobs={"beta": 0.1, "learning_rate": 1e-4})
    assert not time_left.unknown([faster], known), "a coefficient costs nothing"
    larger = make(algorithm_key="grpo", task_key="sort", steps=10, knobs={"group_size": 16})
    assert time_left.unknown([larger, spec, larger], known) == [larger], "a larger batch does"
    measured = {pace.setting(larger): time_left.Pace(2.0, 1.0)}
    found = time_left.estimate([larger, spec], known, measured, 2)
    assert found.measured and found.seconds == pytest.approx(12 + time_left.PER_RUN) and not found.unknown
    run = lab.store.runs("finished")[0]
    fork = replace(run, spec=replace(run.spec, parent=("parent", 3)))
    assert not time_left.earlier([fork]), "its steps and seconds are its parent's too"
    monkeypatch.setattr(platform, "node", lambda: "another machine")
    assert not time_left.earlier(lab.store.runs("finished")), "its numbers say nothing of this one"


def test_where_nothing_ran_this_machine_is_measured_once_and_the_page_says_so(page, lab):
    asked = []

    def measured(spec):
        asked.append(spec)
        return {"paces": [{"once": 0.0, "step": 0.1} for _ in spec["specs"]]}

    assert any("Measuring this machine's speed" in each.value for each in page("compare").caption)
    Answering(lab.launcher, measured)
    said = " ".join(each.value for each in page("compare").caption)
    assert re.search(r"About [\d hmins]+, estimated from a 2 s measurement on this machine\.", said)
    assert "SFT of the base model" not in said, "the base of the default task comes with the lab"
    page("compare")
    assert len(asked) == 1 and asked[0]["seconds"] <= 3 and asked[0]["host"] == platform.node()


def test_the_sft_of_a_base_that_does_not_come_with_the_lab_is_said(page, lab, monkeypatch):
    monkeypatch.setattr(bases, "shipped", lambda name: False)
    Answering(lab.launcher, lambda spec: {"paces": [{"once": 0.0, "step": 0.1} for _ in spec["specs"]]})
    said = " ".join(each.value for each in page("compare").caption)
    assert says(said, "SFT of the base model", "first", "at most 40 s")


def test_what_cannot_be_measured_is_said(page, lab):
    Answering(lab.launcher, lambda spec: {"paces": [None, *({"once": 0.0, "step": 0.1} for _ in spec["specs"][1:])]})
    said = " ".join(each.value for each in page("compare").caption)
    assert "More than" in said and "no earlier PPO run to estimate from" in said


def test_the_form_is_in_the_link_and_comes_back_from_it(page, lab):
    test = page("compare")
    assert not test.query_params
    next(each for each in test.segmented_control if each.label == "Compare").set_value("sweep")
    ran(test)
    next(box for box in test.text_input if box.label == "Values of β").set_value("0, 0.1")
    next(box for box in test.number_input if box.label == "Seeds").set_value(2)
    ran(test)
    link = "".join(test.query_params["new"])
    again = page("compare", new=link)
    assert button(again, "Start 4 runs") and "".join(again.query_params["new"]) == link
    assert next(box for box in again.text_input if box.label == "Values of β").value == "0, 0.1"


@pytest.mark.parametrize("link", now(["{", "[]", '{"seeds":0}', '{"seeds":true}', '{"way":"x"}',
                                      '{"axes":{"grpo":[1]}}', '{"knobs":{"grpo:sort":{"beta":-1}}}',
                                      '{"knobs":{"x:y":{}}}', '{"else":1}'],
                                     "{", '{"seeds":0}', '{"knobs":{"grpo:sort":{"beta":-1}}}', '{"else":1}'))
def test_a_link_that_is_none_is_said_and_the_form_is_as_usual(page, link):
    test = page("compare", new=link)
    assert any("cannot be read" in warning.value for warning in test.warning) and button(test, "Start 15 runs")


def test_a_sweep_begins_with_the_settings_of_the_run_that_is_looked_at(page, lab):
    test = page("maze", algorithm="sarsa", task="cliff", gamma="0.9", seed="4", steps="50")
    button(test, "Sweep").click()
    ran(test)
    assert {box.label: box.value for box in test.selectbox}["Algorithm"] == "sarsa"
    ran(test.switch_page("../pages/compare.py"))  # where the button led
    button(test, "Start").click()
    ran(test)
    runs = lab.store.sweep_runs()
    assert {(run.spec.kind, run.spec.algorithm, run.spec.task, run.spec.steps) for run in runs} == {
        ("maze", "sarsa", "cliff", 50)}
    assert {run.spec.knobs["gamma"] for run in runs} == {0.9} and {run.spec.seed for run in runs} == {4, 5, 6}
    assert {run.spec.knobs["pace"] for run in runs} == {0.0} and len({run.spec.knobs["alpha"] for run in runs}) == 5


def test_values_that_are_swept_do_not_stay_when_algorithms_are_compared(page, lab):
    test = page("compare")
    way = next(each for each in test.button_group if each.label == "Compare")
    way.set_value("sweep")
    ran(test)
    next(each for each in test.button_group if each.label == "Compare").set_value("algorithms")
    ran(test)
    button(test, "Start").click()
    ran(test)
    for run in lab.store.sweep_runs():
        assert run.spec.knobs["beta"] == knob("beta", run.spec.algorithm).default
