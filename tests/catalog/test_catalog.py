"""The contract of the tables: every row, knob, choice, panel and task keeps it, those of tomorrow too."""

from __future__ import annotations

import importlib
import json
import math
import re
from dataclasses import asdict
from inspect import signature
from pathlib import Path

import pytest

from labcore.catalog.algorithms import ALGORITHMS
from labcore.catalog.choices import ADVANTAGE, FAMILIES, KL_PLACEMENTS
from labcore.catalog.kinds import algorithm, task
from labcore.catalog.knob import Knob
from labcore.catalog.metrics import METRICS, PANELS, metric
from labcore.catalog.models import MODELS
from labcore.catalog.tasks import TASKS
from labcore.errors import LabError
from labcore.llm import view
from labcore.llm.session import LOOPS
from labcore.maths.call import member
from labcore.runs.spec import RunSpec, knobs_of, make
from tests.llm.tools import records, session

FAMILY = {family.key: family for family in FAMILIES}
PAIRS = [(row, work) for row in ALGORITHMS for work in TASKS if ALGORITHMS[row].loop in TASKS[work].loops]
# Each different declaration once.
KNOBS = {knob: f"{row}-{work}-{knob.key}" for row, work in PAIRS for knob in knobs_of(ALGORITHMS[row], TASKS[work])}
DATA = {"prompts": '{"prompt": "1+1=", "answer": "2"}\n', "text": "to be or not to be, " * 50,
        "preferences": '{"prompt": "a", "chosen": "b", "rejected": "c"}\n'}
# What a number or a switch trades for what; "On: … Off: …" for a switch.
TRADE_OFF = re.compile(r"\b(higher|lower|more|longer|shorter|fewer)\b[^.]*:", re.IGNORECASE)
SWITCH = re.compile(r"\bOn: .*\bOff: ")


@pytest.fixture
def data(tmp_path):
    def write(key):
        kind = TASKS[key].data
        if not kind:
            return None
        path = tmp_path / f"{kind}.data"
        path.write_text(DATA[kind], encoding="utf-8")
        return str(path)
    return write


# ---------------------------------------------------------------------------- rows

@pytest.mark.parametrize("row, work", PAIRS)
def test_a_default_spec_is_valid_and_survives_json(row, work, data):
    spec = make(algorithm_key=row, task_key=work, data=data(work))
    again = RunSpec.from_json(spec.to_json())
    assert again == spec and again.hash() == spec.hash()
    assert again.row is ALGORITHMS[row] and again.task_row is TASKS[work]
    assert all(type(value) in (bool, int, float, str) for value in spec.knobs.values())
    assert set(spec.knobs) == {knob.key for knob in knobs_of(spec.row, spec.task_row)}
    # What the row says of itself, the task may change; nothing else does.
    own = {knob.key: knob.default for knob in spec.row.knobs} | dict(spec.task_row.defaults)
    own |= dict(spec.task_row.sft) if spec.row.loop == "sft" else {}
    assert all(spec.knobs[key] == own[key] for key in (knob.key for knob in spec.row.knobs))


@pytest.mark.parametrize("key", ALGORITHMS)
def test_a_row_says_what_it_is(key):
    row = ALGORITHMS[key]
    json.dumps(asdict(row))
    assert row.key == key and row.loop in LOOPS and row.steps > 0
    for text in (row.summary, row.watch):
        assert text.endswith(".") and text[0].isupper()
    assert re.search(r"\b(19|20)\d\d\b", row.paper)
    assert row.latex.count("{") == row.latex.count("}") and row.latex.startswith(("L = ", r"\begin{gathered}L = "))
    assert row.latex.count(r"\Big[") == row.latex.count(r"\Big]")
    assert row.panels and len(set(row.panels)) == len(row.panels) and set(row.panels) <= set(PANELS)
    assert row.panels[-2:] == ("speed", "memory") and row.panels.index("loss") > row.panels.index("grad_norm")


@pytest.mark.parametrize("key", ALGORITHMS)
def test_a_row_holds_the_models_that_its_choices_need(key):
    row = ALGORITHMS[key]
    chosen = [knob.default for knob in row.knobs if knob.key == "advantage"]
    needs_critic = bool(chosen) and ADVANTAGE[chosen[0]].critic
    assert row.models[0] == "policy" and ("critic" in row.models) == needs_critic
    assert ("reference" in row.models) == any(knob.key == "beta" for knob in row.knobs)
    assert ("critic_learning_rate" in {knob.key for knob in row.knobs}) == needs_critic


@pytest.mark.parametrize("key", ALGORITHMS)
def test_a_tiny_run_logs_every_number_that_its_charts_show(key):
    started = session(key, letters=True, steps=2, **({"eval_every": 1} if ALGORITHMS[key].loop != "online" else {}))
    drawn = {name for panel in ALGORITHMS[key].panels for name in PANELS[panel].metrics}
    drawn -= {name for name in drawn if METRICS[name].about == "machine"}  # the worker's to say
    if started.knobs.get("group_size", 1) == 1 or ALGORITHMS[key].loop != "online":
        drawn -= {"frac_reward_zero_std"}  # there is no group
    for record in records(started):
        assert drawn <= set(record.metrics) <= set(METRICS)
        assert all(math.isfinite(value) for value in record.metrics.values())


# ---------------------------------------------------------------------------- knobs

@pytest.mark.parametrize("knob", KNOBS, ids=KNOBS.values())
def test_a_knob_is_wholly_declared(knob: Knob):
    assert knob.check(knob.default) == knob.default and type(knob.check(knob.default)) is knob.type
    assert knob.parse(str(knob.default)) == knob.default
    assert knob.label and knob.help.endswith(".") and knob.effect in ("live", "next batch", "restart")
    if knob.choices:
        assert explained(knob), f"{knob.key}: its help names neither each choice nor a family that does"
    elif knob.type is bool:
        assert SWITCH.search(knob.help)
    elif knob.type is not str:
        assert TRADE_OFF.search(knob.help), f"{knob.key}: its help does not say what more or less of it brings"
        assert knob.low is not None and knob.high is not None and knob.low < knob.high
    if knob.safe:
        low, high = knob.safe
        assert knob.low <= low < high <= knob.high and (knob.scale == "linear" or low > 0)
    if knob.type in (int, float):
        for beyond in (knob.low - 1, knob.high + 1, math.nan, math.inf):
            with pytest.raises(LabError, match=knob.key):
                knob.check(beyond)
    with pytest.raises(LabError, match=knob.key):
        knob.check(object())


def explained(knob: Knob) -> bool:
    if knob.key in FAMILY:
        return knob.choices == FAMILY[knob.key].names and all(choice.label for choice in FAMILY[knob.key].members)
    return all(re.search(rf"(^|\W){re.escape(choice)}\b", knob.help) for choice in knob.choices)


@pytest.mark.parametrize("row, work", PAIRS)
def test_no_knob_is_declared_twice(row, work):
    keys = [knob.key for knob in knobs_of(ALGORITHMS[row], TASKS[work])]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("key", ALGORITHMS)
def test_the_live_knobs_stand_in_the_equation(key):
    """What can be turned while it runs, but for step sizes, is a letter of the loss; so is G where groups count."""
    row = ALGORITHMS[key]
    for knob in row.knobs:
        if knob.effect == "live" and knob.symbol and not knob.key.endswith("learning_rate"):
            assert knob.symbol in row.latex, f"{knob.symbol} ({knob.key}) is not in the equation of {row.label}"
    symbols = [knob.symbol for knob in row.knobs if knob.symbol]
    assert len(set(symbols)) == len(symbols)
    compares = any(ADVANTAGE[knob.default].group for knob in row.knobs if knob.key == "advantage")
    assert not compares or "G" in row.latex


# ---------------------------------------------------------------------------- choices

MEMBERS = [(family, choice) for family in FAMILIES for choice in family.members]


@pytest.mark.parametrize("family, choice", MEMBERS, ids=[f"{f.key}-{c.key}" for f, c in MEMBERS])
def test_a_choice_names_a_function_and_the_knobs_it_asks_for(family, choice):
    function = member(family, choice.key)
    assert function.__name__ == choice.key and function.__doc__
    assert choice.label and choice.latex.count("{") == choice.latex.count("}")
    rows = [row for row in ALGORITHMS.values() if any(knob.key == family.key for knob in row.knobs)]
    asked = set(signature(function).parameters) & {knob.key for row in rows for knob in row.knobs}
    everywhere = set.intersection(*({knob.key for knob in row.knobs} for row in rows))
    assert asked - everywhere <= set(choice.needs) <= asked


MIXES = [(row.key, knob.key, choice) for row in ALGORITHMS.values() for knob in row.knobs
         if knob.key in FAMILY or knob.key == "kl_placement" for choice in knob.choices]


@pytest.mark.parametrize("row, knob, choice", MIXES)
def test_a_mix_of_ones_own_runs_or_is_refused_in_words(row, knob, choice, monkeypatch):
    monkeypatch.setattr(view, "line_due", lambda step: False)
    given = {"prompts_per_step": 2, "group_size": 2} if ALGORITHMS[row].loop == "online" else {}
    try:
        started = session(row, steps=1, **given, **{knob: choice})
    except LabError as error:
        assert knob in str(error) or FAMILY[knob].label in str(error) or "surrogate" in str(error)
        assert choice != algorithm(row).knob(knob).default
        return
    (record,) = records(started)
    assert math.isfinite(record.metrics["loss"]) and record.metrics["grad_norm"] > 0


def test_placements_of_the_kl():
    assert set(KL_PLACEMENTS) == {"reward", "loss", "off"}


# ---------------------------------------------------------------------------- metrics, panels, tasks, models

@pytest.mark.parametrize("key", METRICS)
def test_a_metric_says_what_it_is(key):
    declared = metric(key)
    assert declared.key == key and declared.label and declared.help.endswith(".") and declared.digits >= 0
    assert not declared.healthy or declared.healthy.endswith(".")


@pytest.mark.parametrize("key", PANELS)
def test_a_panel_draws_metrics_of_one_kind(key):
    panel = PANELS[key]
    drawn = [METRICS[name] for name in panel.metrics]
    assert panel.key == key and panel.title and drawn
    assert any(key in row.panels for row in ALGORITHMS.values())
    assert len({metric.about for metric in drawn}) == 1
    assert len({metric.unit.split(" ")[0] for metric in drawn}) == 1  # "share of groups" beside "share of completions"


@pytest.mark.parametrize("key", TASKS)
def test_a_task_can_be_made(key, data):
    row = TASKS[key]
    assert row.key == key and row.label and row.help.endswith(".") and row.example and set(row.loops) <= set(LOOPS)
    module, name = row.source.split(":")
    source = getattr(importlib.import_module(module), name)
    made = source({knob.key: knob.default for knob in row.knobs}, Path(data(key)) if row.data else None)
    assert callable(made.problems) and callable(made.score) and isinstance(made.characters, str)
    known = {knob.key for row in ALGORITHMS.values() for knob in row.knobs}
    assert set(row.defaults) <= known and not known & {knob.key for knob in row.knobs}
    assert row.verifiable or "online" not in row.loops


@pytest.mark.parametrize("key", MODELS)
def test_a_model_size_fits_together(key):
    size = MODELS[key]
    assert size.key == key and key in size.label and size.parameters in size.label
    assert size.hidden % size.heads == 0 and (size.hidden // size.heads) % 2 == 0 and size.context > 0


# ---------------------------------------------------------------------------- names nobody knows

@pytest.mark.parametrize("look_up, near, suggested", [
    (algorithm, "grpp", "grpo"), (task, "sotr", "sort"), (metric, "rewards", "reward"),
    (algorithm("grpo").knob, "betta", "beta"), (ADVANTAGE.__getitem__, "leave_one_in", "leave_one_out")])
def test_an_unknown_name_gets_a_suggestion(look_up, near, suggested):
    with pytest.raises(LabError, match=rf"{near!r}: did you mean '{suggested}"):
        look_up(near)
    with pytest.raises(LabError, match=r"'qqqqqq': choose one of .*, .*\.$"):
        look_up("qqqqqq")
