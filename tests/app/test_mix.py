"""Mixes on the page: the card, its name, saving, links, and comparisons of them."""

import re

import pytest

from app import algorithms
from app.compare.launch import planning
from app.training.mix import differences
from labcore.catalog.kinds import kind
from labcore.catalog.mix.nearest import PARTS, Difference
from labcore.errors import LabError
from labcore.runs import mixes, sweep
from labcore.runs.spec.run_spec import every_knob
from tests.app.seeding import components, html, ran, seed

MOVED = {"aggregation": "token_mean", "advantage": "group_mean"}


def button(test, label):
    return next(each for each in test.button if each.label.startswith(label))


def words(test) -> str:
    return " ".join(element.value for element in (*test.get("html"), *test.latex, *test.warning) if element.value) + \
        " ".join(element.proto.body for element in test.get("html"))


def box(test, label):
    return next(each for each in test.selectbox if each.label == label)


def test_other_choices_are_a_mix_with_its_nearest_row_its_equation_and_its_cautions(page):
    assert "Nearest" not in words(page("llm")), "GRPO is no mix"
    said = words(page("llm", **MOVED))
    assert "Nearest: <b>GRPO</b>" in said and "standard deviation</s> → reward − group mean<" in said
    assert "k3 in the loss has the gradient" in said and r"\hat A_i = R - \bar R_g" in said
    assert "These choices are <b>Dr. GRPO</b>" in words(page(
        "llm", aggregation="constant_length", advantage="group_mean", kl_placement="off"))


def test_a_number_that_puts_a_choice_out_of_use_makes_no_mix(page):
    assert "Nearest" not in words(page("llm", beta="0")), "GRPO without a KL is GRPO"


def test_no_key_of_a_choice_is_in_what_differs():
    for knob in (every_knob()[key] for key in PARTS):
        for value in knob.choices or ():
            assert not re.search(r"[a-z]{2,}_[a-z]", differences([Difference(knob, value, value)])), value


def test_a_mix_is_named_saved_offered_and_run_under_its_name(page, lab):
    test = page("llm", **MOVED)
    button(test, "Name this mix").click()
    ran(test)
    assert test.query_params["mix"] == "GRPO mix" and test.query_params["aggregation"] == "token_mean"
    next(each for each in test.text_input if each.label == "Name of your mix").set_value("mine")
    ran(test)
    button(test, "Save this mix").click()
    ran(test)
    assert [(mix.name, mix.knobs) for mix in mixes.saved()[0]] == [("mine", MOVED)]
    assert box(test, "Algorithm").value == "mix:mine"
    assert "Your mixes: mine" in box(page("llm"), "Algorithm").options
    button(test, "Run").click()
    ran(test)
    (run,) = lab.store.runs()
    assert (run.spec.mix, run.spec.knobs["aggregation"]) == ("mine", "token_mean")


def test_a_link_brings_a_mix_that_this_lab_has_not_saved_and_offers_to_save_it(page):
    test = page("llm", mix="theirs", advantage="gae", surrogate="soft_gate")
    assert test.query_params["mix"] == "theirs" and test.query_params["surrogate"] == "soft_gate"
    button(test, "Save this mix").click()
    ran(test)
    assert mixes.find("theirs").knobs == {"advantage": "gae", "surrogate": "soft_gate"}
    assert "Save the changes" not in {each.label for each in test.button}
    box(test, "Aggregation").set_value("token_mean")
    ran(test)
    button(test, "Save the changes").click()
    ran(test)
    assert mixes.find("theirs").knobs["aggregation"] == "token_mean"


@pytest.mark.parametrize("query, said", [
    ({"mix": "<b>"}, "mix=<b>"), ({"mix": "mine", "algorithm": "sft"}, "mix=mine")])
def test_a_mix_in_a_link_that_cannot_be_is_left_out_and_said(page, query, said):
    test = page("llm", **query)
    assert "mix" not in test.query_params and any("do not fit" in each.value for each in test.error)


def test_a_damaged_file_of_mixes_is_one_sentence_on_the_page(page):
    mixes.path().write_text("{")
    test = page("llm")
    assert len([each for each in test.warning if "cannot be read" in each.value]) == 1
    assert mixes.path().read_text() == "{"


def test_a_finished_run_of_a_mix_shows_its_name(page, lab):
    run_id = seed(lab.store, "finished", mix="mine", knobs=MOVED)
    test = page("llm", run=run_id)
    assert "mine" in box(test, "Run").options[1] and box(test, "Algorithm").value == "mix:mine"
    assert "mine" in str(components(page("compare", runs=run_id)))
    assert "mine" in str(page("runs", find="mine").dataframe[0].value)


def test_a_saved_mix_is_compared_with_named_rows_and_swept(page, lab):
    mixes.save(mixes.Mix("mine", "grpo", MOVED))
    test = page("compare")
    next(each for each in test.multiselect if each.label == "Algorithms").set_value(["grpo", "mix:mine"])
    ran(test)
    button(test, "Start 6 runs").click()
    ran(test)
    (started,) = sweep.sweeps(lab.store)
    assert {(run.spec.mix, run.spec.knobs["aggregation"]) for run in started.runs} == {
        ("", "sequence_mean_token_mean"), ("mine", "token_mean")}


def test_the_sweep_of_a_mix_begins_with_its_choices(page):
    test = page("llm", mix="theirs", **MOVED)
    button(test, "Sweep").click()
    ran(test)
    assert box(test, "Algorithm").value == "mix:theirs"
    assert button(test, "Start 15 runs")
    kept = test.session_state["draft:launch-llm"]["knobs"][algorithms.place("grpo", "theirs", "sort")]
    assert (kept["advantage"], kept["aggregation"]) == ("group_mean", "token_mean")


def test_a_plan_s_link_brings_its_mix():
    place = algorithms.place("grpo", "mine", "sort")
    text = planning.to_link("sweep", "llm", {"mix": "mine", "algorithm": "grpo", "knobs": {place: MOVED}},
                            {"mix": "", "algorithm": "grpo", "knobs": {}})
    found = planning.of_link(text)
    assert found["mix"] == "mine" and algorithms.begun(found["knobs"])["mine"] == mixes.Mix("mine", "grpo", MOVED)
    for wrong in ('{"mix":"<b>"}', '{"mix":"mine","algorithm":"sft"}', '{"mix":3}',
                  '{"knobs":{"sft:sort|mine":{"learning_rate":1}}}'):
        with pytest.raises(LabError, match="cannot be read"):
            planning.of_link(wrong)


def test_only_language_models_offer_mixes(lab):
    mixes.save(mixes.Mix("mine", "ppo", {}))
    assert "mix:mine" in algorithms.keys(kind("llm")) and "mix:mine" not in algorithms.keys(kind("cartpole"))


@pytest.mark.parametrize("query, said", [
    ({"algorithm": "dapo", "resample_rounds": "0"}, "Groups without signal are left out and nothing takes their place"),
    pytest.param({"algorithm": "grpo", "letters": "10"}, "The length limit of 8 tokens cuts off 64 of 64 right answers",
                 marks=pytest.mark.long),
    ({"algorithm": "grpo", "surrogate": "bounded_clip", "clip_delta": "1.1"}, "Two-sided clip δ is below 1 + ε_high"),
    ({"algorithm": "grpo"}, "")])
def test_numbers_alone_have_their_cautions_too(page, query, said):
    shown = html(page("llm", **query))
    assert said in shown and ("with warnings" in shown) == (bool(said) and "surrogate" not in query)
