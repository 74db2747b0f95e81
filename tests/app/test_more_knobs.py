"""The form of knobs: groups, search, knobs without effect, what differs from the defaults and the way back."""

import re

from app.naming import written
from app.tokens import literal
from app.training import more_knobs
from labcore.catalog.knob import GROUPS
from labcore.runs.spec.run_spec import every_knob
from tests.app.seeding import html, ran, seed, unfolded
from tests.every import every


def folds(test) -> list[str]:
    found = [fold.label for fold in test.expander]
    return found[found.index("More knobs"):][:len(notes_of(test))]


def notes_of(test) -> list[str]:
    """The notes beside the titles of the folds of knobs, in their order."""
    return re.findall(r'<div class="rl-fold-note">(.*?)</div>', html(test))


def no_effect(test) -> int:
    """How many knobs are said to have no effect."""
    return int(notes_of(test)[folds(test).index("No effect now")])


def labelled(test, kind: str, label: str):
    return next(each for each in getattr(test, kind) if each.label.startswith(label))


def test_every_knob_is_in_a_group_that_the_form_has():
    assert [key for key, knob in every_knob().items() if knob.group == "other"] == []
    assert {knob.group for knob in every_knob().values()} <= GROUPS.keys()


@every("knob", every_knob().values())
def test_a_slider_reaches_at_least_as_far_as_usual_and_nothing_that_is_refused(knob):
    if knob.reach:
        assert knob.safe and knob.low <= knob.reach[0] <= knob.safe[0] < knob.safe[1] <= knob.reach[1] <= knob.high


def test_a_choice_with_a_long_name_is_written_in_full_below_its_box(page):
    test = page("llm")
    for key in (more_knobs.KEY, more_knobs.key_of("advantage")):
        test.session_state[key] = True
    chosen = labelled(ran(test), "selectbox", "Advantage")
    captions = [caption.value for caption in test.caption]
    assert literal(written("advantage", chosen.value)) in captions
    assert labelled(test, "selectbox", "Normalisation").value == "none" and "none" not in captions


def test_a_closed_group_draws_nothing_and_says_how_many_of_its_knobs_are_changed(page):
    test = page("llm", max_grad_norm="0.5")
    test.session_state[more_knobs.KEY] = True
    ran(test)
    notes = dict(zip(folds(test), notes_of(test), strict=True))
    assert (notes["More knobs"], notes["Optimisation"], notes["Sampling"]) == ("1 changed", "1 changed", "")
    assert not any(slider.label == "Gradient clip" for slider in test.select_slider)
    test.session_state[more_knobs.key_of("optimisation")] = True
    clip = labelled(ran(test), "select_slider", "Gradient clip")
    assert clip.value == 0.5
    clip.set_value(1.0)
    assert labelled(ran(test), "select_slider", "Gradient clip").value == 1.0, "its group stays open"
    assert not any(each.label.startswith("Top-k") for each in test.number_input)


def test_a_search_finds_by_name_help_and_other_tools_words_and_loses_no_value(page):
    test = unfolded(page("llm"), "optimisation")
    labelled(test, "number_input", "Mini-batches").set_value(4)
    ran(test)

    def searched(words: str):
        labelled(test, "text_input", "Search knobs").set_value(words)
        unfolded(test, "optimisation")

    searched("ppo_mini_batch_size")
    assert notes_of(test)[0] == "1 changed"
    assert labelled(test, "number_input", "Mini-batches").value == 4
    searched("num_generations")
    assert any("Group size G" in caption.value for caption in test.caption), "a knob that stands above is named"
    assert not any(each.label.startswith("Mini-batches") for each in test.number_input)
    searched("zzz")
    assert any("No match" in caption.value for caption in test.caption)
    searched("")
    assert labelled(test, "number_input", "Mini-batches").value == 4
    assert test.query_params["mini_batches"] == "4"


def test_knobs_without_effect_leave_their_groups_for_one_with_the_reasons(page):
    test = page("llm", kl_placement="off")
    test.session_state[more_knobs.KEY] = True
    before = no_effect(ran(test))
    test.session_state[more_knobs.key_of(more_knobs.NO_EFFECT)] = True
    assert any("the KL placement is off" in caption.value for caption in ran(test).caption)
    assert labelled(test, "selectbox", "KL estimator")
    test = page("llm", kl_placement="loss")
    test.session_state[more_knobs.KEY] = True
    assert no_effect(ran(test)) < before


def test_what_differs_is_marked_and_goes_back_alone_or_with_all_others(page):
    test = page("llm", beta="0.2", group_size="4")
    assert sum(button.label.startswith("Back to") for button in test.button) == 2
    one = next(button for button in test.button if button.label == "Back to 0.04")
    one.click()
    ran(test)
    assert "beta" not in test.query_params and test.query_params["group_size"] == "4"
    assert not any(button.label == "Back to 0.04" for button in test.button)
    next(button for button in test.button if button.label == "Reset 1 knob").click()
    ran(test)
    assert "group_size" not in test.query_params
    [all_usual] = [button for button in test.button if button.label == "All knobs at their defaults"]
    assert all_usual.disabled


def test_a_running_run_is_asked_to_go_back_and_keeps_what_needs_a_new_run(page, lab):
    run = seed(lab.store, knobs={"beta": 0.1, "letters": 5})
    test = page("llm", run=run)
    assert not any(button.label == "Back to 6" for button in test.button), "locked while it runs"
    next(button for button in test.button if button.label == "Reset 1 knob").click()
    ran(test)
    assert [asked.payload for asked in lab.store.asked(run)] == [{"knob": "beta", "value": 0.04}]


def test_knobs_that_go_together_only_at_their_defaults_are_reset_in_any_order(page, lab):
    """30 prompts in 5 parts; 32 prompts cannot be cut into 5."""
    run = seed(lab.store, knobs={"beta": 0.04, "prompts_per_step": 30, "mini_batches": 5})
    lab.store.log(run, "knob", {"knob": "beta", "from": 0.2, "to": 0.04, "update": 9, "between": 1, "text": ""}, 7)
    test = page("llm", run=run)
    next(button for button in test.button if button.label == "Reset 2 knobs").click()
    ran(test)
    assert not test.error
    assert [asked.payload["knob"] for asked in lab.store.asked(run)] == ["mini_batches", "prompts_per_step"]


def test_the_slider_of_beta_reaches_a_value_that_hurts(page):
    beta = labelled(page("llm"), "select_slider", "KL coefficient")
    assert {"0 reward/nat", "0.005 reward/nat", "0.04 reward/nat", "1 reward/nat"} <= {*beta.options}
