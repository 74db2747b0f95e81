"""The families of choices: each names a function, and a mix of one's own runs or is refused in words."""

from __future__ import annotations

import math
from inspect import signature

import pytest

from labcore.catalog.choices import FAMILIES, KL_PLACEMENTS
from labcore.catalog.kinds import algorithm
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.errors import LabError
from labcore.llm.probes import view
from labcore.maths.call import member
from tests.llm.tools import records, session

FAMILY = {family.key: family for family in FAMILIES}
# Knobs of a choice that the step reads, not its function.
OF_THE_STEP = {"informative": {"resample_rounds"}, "reference_once": {"pair_prompts", "group_size"},
               **{key: {"reward_model"} for key in ("reward_model", "worst_case_ensemble",
                                                    "uncertainty_weighted_ensemble")}}
MEMBERS = [(family, choice) for family in FAMILIES for choice in family.members]


@pytest.mark.parametrize("family, choice", MEMBERS, ids=[f"{f.key}-{c.key}" for f, c in MEMBERS])
def test_a_choice_names_a_function_and_the_knobs_it_asks_for(family, choice):
    function = member(family, choice.key)
    assert function.__name__ == choice.key and function.__doc__
    assert choice.label and choice.latex.count("{") == choice.latex.count("}")
    rows = [row for row in ALGORITHMS.values() if any(knob.key == family.key for knob in row.knobs)]
    asked = set(signature(function).parameters) & {knob.key for row in rows for knob in row.knobs}
    everywhere = set.intersection(*({knob.key for knob in row.knobs} for row in rows))
    assert asked - everywhere <= set(choice.needs) <= asked | OF_THE_STEP.get(choice.key, set())


# Rows of preferences that hold the same and get their pairs alike differ by their loss alone: it is mixed into one.
LIKE = {row.key: (row.models, row.knob("pairs").default) for row in ALGORITHMS.values() if row.loop == "preference"}
MIXED = [row for row in ALGORITHMS.values()
         if row.key == next((key for key, like in LIKE.items() if like == LIKE.get(row.key)), row.key)]
# All defaults of a row are the row itself, which is tried once, with its first choice.
MIXES = [(row.key, knob.key, choice) for row in MIXED
         for place, knob in enumerate(knob for knob in row.knobs if knob.key in FAMILY or knob.key == "kl_placement")
         for choice in knob.choices if choice != knob.default or place == 0]


@pytest.mark.parametrize("row, knob, choice", MIXES)
def test_a_mix_of_ones_own_runs_or_is_refused_in_words(row, knob, choice, monkeypatch):
    monkeypatch.setattr(view, "line_due", lambda step: False)
    given = {"prompts_per_step": 2, "group_size": 2} if ALGORITHMS[row].loop == "online" else {}
    if choice == "not_truncated":
        given |= {"prompts_per_step": 4, "max_new_tokens": 40}  # random weights seldom end within six tokens
    if choice == "order_only":
        given = {"prompts_per_step": 8, "group_size": 8, "max_new_tokens": 2}  # and seldom write six in order
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
