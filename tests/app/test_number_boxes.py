"""A number that a knob cannot have stays in its box, is said there and beside Run, and nothing starts with another."""

import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app.tokens import literal
from labcore.runs.spec.run_spec import every_knob
from tests.app.seeding import html, ran, seed, unfolded
from tests.app.test_forking import button, checkpointed, marker, opened
from tests.every import now
from tests.words import says

ROOT = Path(__file__).resolve().parents[2]


def box(test, label):
    return next(each for each in test.number_input if each.label.startswith(label))


def run_button(test, label="Run"):
    return next(each for each in test.button if each.label == label)


@pytest.mark.parametrize("label, typed, said", [
    ("Group size G · from 1 to 1024", 1_000_000, "Group size G is 1000000, outside its bounds: use a value from 1 to "
                                                 "1024."),
    *(pytest.param(*each, marks=pytest.mark.long) for each in (
        ("KL coefficient β", -5.0, "KL coefficient β is -5, outside its bounds"),
        ("Learning rate η", 1e9, "Learning rate η is 1e+09, outside its bounds")))])
def test_a_number_out_of_bounds_keeps_run_from_starting_with_another(page, label, typed, said):
    test = page("llm", algorithm="grpo", task="sort")
    before = box(test, label).value
    box(test, label).set_value(typed)
    ran(test)
    assert box(test, label).value == typed, "what was typed is to be put right, not lost"
    assert f"Not ready yet.</b> {said}" in html(test) and run_button(test).disabled
    assert any(each.value.startswith(f":small[:red[{said}") for each in test.markdown)
    box(test, label).set_value(before)
    ran(test)
    assert "<b>Ready.</b>" in html(test) and not run_button(test).disabled


def test_the_slider_puts_it_right_too(page):
    test = page("llm", algorithm="grpo", task="sort")
    box(test, "Group size").set_value(1_000_000)
    ran(test)
    next(each for each in test.slider if each.label.startswith("Group size")).set_value(16)
    ran(test)
    assert box(test, "Group size").value == 16 and not run_button(test).disabled


def test_run_is_refused_where_it_is_pressed_before_the_page_has_heard_of_the_number(page, lab):
    test = page("llm", algorithm="grpo", task="sort")
    box(test, "Group size").set_value(1_000_000)
    run_button(test).click()
    ran(test)
    assert not lab.store.runs() and "Group size G is 1000000" in test.error[0].value


@pytest.mark.parametrize("label, typed, said", [
    ("Steps", 99_999_999_999, "Steps is 99999999999, outside its bounds: use a value from 1 to 10000000."),
    ("Seed", -1, "Seed is -1, outside its bounds: use a value from 0 to 2147483647.")])
def test_so_it_is_with_steps_and_seed(page, label, typed, said):
    test = page("llm", algorithm="grpo", task="sort")
    box(test, label).set_value(typed)
    ran(test)
    assert f"Not ready yet.</b> {said}" in html(test) and run_button(test).disabled
    assert box(test, label).proto.help.startswith("From ")


def test_a_run_that_ended_is_not_run_again_or_resumed_with_it(page, lab):
    run = seed(lab.store, "stopped", message="Stopped.")
    test = page("llm", run=run)
    box(test, "KL coefficient").set_value(-5.0)
    ran(test)
    assert run_button(test, "Run again").disabled
    run_button(test, "Resume").click()
    ran(test)
    assert not lab.launcher.resumed and "KL coefficient β is -5" in test.error[0].value


def test_a_run_that_goes_hears_nothing_of_it_and_it_can_be_put_right(page, lab):
    run = seed(lab.store)
    test = page("llm", run=run)
    box(test, "KL coefficient").set_value(99.0)
    ran(test)
    assert box(test, "KL coefficient").value == 99 and not lab.store.controls(run)
    assert any(says(each.value, ":small[:red[KL coefficient β", "99", "0 to 10") for each in test.markdown)
    box(test, "KL coefficient").set_value(9.0)
    ran(test)
    assert [asked.payload for asked in lab.store.asked(run)] == [{"knob": "beta", "value": 9.0}]
    assert not any("outside its bounds" in each.value for each in test.markdown)


def test_what_a_run_refuses_for_another_reason_is_said_on_top_at_once(page, lab):
    """From a fragment, which the message is no part of."""
    run = seed(lab.store)
    test = page("llm", run=run)
    box(unfolded(test, "optimisation"), "Mini-batches").set_value(5)
    assert "mini_batches" in ran(test).error[0].value.replace("Mini-batches", "mini_batches")
    assert not lab.store.controls(run)


def test_what_was_changed_elsewhere_counts_for_the_next_value_and_what_waits_for_an_answer_stays(page, lab):
    run = seed(lab.store)
    test = page("llm", run=run)
    box(unfolded(test, "optimisation"), "Group size").set_value(6)
    ran(test)
    lab.store.log(run, "knob", {"knob": "prompts_per_step", "from": 32, "to": 30, "update": 9, "between": 1,
                                "text": "prompts 32 → 30"}, 7)
    box(ran(test), "Mini-batches").set_value(5)  # which does not divide the 32 of the spec
    ran(test)
    assert not test.error and [asked.payload for asked in lab.store.asked(run)] == [
        {"knob": "group_size", "value": 6}, {"knob": "mini_batches", "value": 5}]
    shown = [box(test, name).value for name in ("Prompts", "Group size", "Mini-batches")]
    assert shown == [30, 6, 5]


# ---- every number that is typed anywhere -------------------------------------------------------------------------


def every_knob_s_box(going: bool) -> None:
    import streamlit

    from app.training import controls
    from labcore.runs.spec.run_spec import every_knob

    known = {key: knob for key, knob in every_knob().items() if knob.type in (int, float)}
    values = streamlit.session_state.setdefault("values", {key: knob.default for key, knob in known.items()})
    sent = streamlit.session_state.setdefault("sent", [])
    target = controls.Target("all", values, (lambda knob, value: sent.append(knob.key)) if going else None)
    for knob in known.values():
        controls.number(target, knob)


@pytest.mark.parametrize("going", now([False, True], False))
def test_every_knob_says_its_bounds_and_takes_nothing_beyond_them(lab, going):
    known = {key: knob for key, knob in every_knob().items() if knob.type in (int, float) and knob.bounds}
    test = AppTest.from_function(every_knob_s_box, args=(going,), default_timeout=30).run()
    boxes = {each.key.split(":")[2]: each for each in test.number_input}
    assert len(known) > 60 and known.keys() <= boxes.keys()
    for key, knob in known.items():
        assert boxes[key].label.endswith(knob.bounds), key
        boxes[key].set_value(knob.type(knob.low - 1 if knob.low is not None else knob.high + 1))
    said = [each.value for each in test.run().markdown]
    assert len(said) == len(known) and all(
        any(literal(knob.title) in each and knob.bounds in each for each in said) for knob in known.values())
    assert test.session_state["values"] == {key: knob.default for key, knob in every_knob().items()
                                            if knob.type in (int, float)}
    assert not test.session_state["sent"]


def of_a_comparison(test):
    next(each for each in test.segmented_control if each.label == "Compare").set_value("sweep")
    next(each for each in ran(test).segmented_control if each.label == "Early stopping").set_value(True)
    return ran(test)


@pytest.mark.parametrize("name, opened, start", now([
    ("llm", None, "Run"), ("exact", None, "Run"), ("maze", None, "Run"), ("cartpole", None, "Run"),
    ("compare", None, "Start"), ("compare", of_a_comparison, "Start")],
    ("llm", None, "Run"), ("compare", of_a_comparison, "Start")))
def test_no_number_of_a_form_is_lost_or_replaced_in_silence(page, lab, name, opened, start):
    test = page(name)
    unfolded(test)
    test = opened(test) if opened else test
    boxes = {each.key: each for each in test.number_input if each.label != "Reward"}  # of the brush of mazes: no run's
    assert len(boxes) >= 3
    for each in boxes.values():
        assert "from " in each.label or "From " in each.proto.help, f"{each.label}: say its bounds"
        each.set_value(10 ** 15 if isinstance(each.value or 1, int) else 1e15)
    ran(test)
    said = [each.value for each in test.markdown if each.value.startswith(":small[:red[")]
    assert len(said) == len(boxes)
    assert all(each.value == 10 ** 15 for each in test.number_input if each.key in boxes)
    assert next(each for each in test.button if each.label.startswith(start)).disabled
    assert not lab.store.runs()


@pytest.mark.long
def test_the_last_step_of_a_fork_says_its_bounds(page, lab):
    parent = checkpointed(lab.store)
    test = opened(page, lab, parent)
    box(test, "Until step").set_value(10 ** 15)
    test = ran(test)
    assert any(says(each.value, ":small[:red[Until step", "1000000000000000", "3 to 10000000")
               for each in test.markdown)
    button(test).click()
    ran(test)
    assert len(lab.store.runs()) == 1 and any("Until step is" in each.value for each in test.error)
    box(test, "Until step").set_value(7)
    button(ran(test)).click()
    ran(test)
    assert lab.store.runs()[0].spec.steps == 7


def test_only_boxes_that_say_so_take_numbers():
    """Streamlit's own bounds would keep another number in the browser, and go on with the last one."""
    asked = {path.relative_to(ROOT).as_posix(): found for path in sorted((ROOT / "app").rglob("*.py"))
             for found in [re.findall(r"number_input\(([^()]*)", path.read_text("utf-8"))] if found}
    assert asked.keys() == {"app/number_boxes.py", "app/training/controls.py", "app/llm/judge_tab.py"}
    assert not re.search("min_value|max_value", str(asked))


def test_a_fork_is_not_started_with_it(page, lab):
    parent = checkpointed(lab.store)
    test = opened(page, lab, parent, marker(lab.store, parent).id)
    next(each for each in test.number_input if each.key.startswith("knob:fork:")).set_value(-5.0)
    button(ran(test)).click()
    ran(test)
    assert len(lab.store.runs()) == 1 and any("β is -5, outside its bounds" in each.value for each in test.error)
