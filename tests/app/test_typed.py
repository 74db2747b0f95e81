"""A number that a knob cannot have stays in its box, is said there and beside Run, and nothing starts with another."""

import pytest

from tests.app.seeding import html, ran, seed
from tests.app.test_forking import button, checkpointed, marker, opened


def box(test, label):
    return next(each for each in test.number_input if each.label.startswith(label))


def run_button(test, label="Run"):
    return next(each for each in test.button if each.label == label)


@pytest.mark.parametrize("label, typed, said", [
    ("Group size G · from 1 to 1024", 1_000_000, "Group size G is 1000000, outside its bounds: use a value from 1 to "
                                                 "1024."),
    ("KL coefficient β", -5.0, "KL coefficient β is -5, outside its bounds"),
    ("Learning rate η", 1e9, "Learning rate η is 1e+09, outside its bounds")])
def test_a_number_out_of_bounds_keeps_run_from_starting_with_another(page, label, typed, said):
    test = page("llm", algorithm="grpo", task="sort")
    before = box(test, label).value
    box(test, label).set_value(typed)
    ran(test)
    assert box(test, label).value == typed, "what was typed is to be put right, not lost"
    assert f"Not ready yet.</b> {said}" in html(test) and run_button(test).disabled
    assert any(each.value.startswith(f":red[{said}") for each in test.caption)
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
    ("Steps", 99_999_999_999, "steps must be a whole number from 1 to 10000000, not 99999999999."),
    ("Seed", -1, "seed must be a whole number from 0")])
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


def test_a_run_that_goes_hears_nothing_of_it_and_the_box_goes_back(page, lab):
    run = seed(lab.store)
    test = page("llm", run=run)
    before = box(test, "KL coefficient").value
    box(test, "KL coefficient").set_value(-5.0)
    ran(test)
    assert "KL coefficient β is -5" in test.error[0].value
    assert not lab.store.controls(run) and box(test, "KL coefficient").value == before


def test_a_fork_is_not_started_with_it(page, lab):
    parent = checkpointed(lab.store)
    test = opened(page, lab, parent, marker(lab.store, parent).id)
    next(each for each in test.number_input if each.key.startswith("knob:fork:")).set_value(-5.0)
    button(ran(test)).click()
    ran(test)
    assert len(lab.store.runs()) == 1 and any("β is -5, outside its bounds" in each.value for each in test.error)
