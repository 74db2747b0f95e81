"""The Playground: what a link opens, and what is asked of the models."""

import json

import pytest

from app import link as address
from app.components.playground_view import payload, reach
from app.playground.place import Place
from labcore.errors import LabError
from labcore.runs import jobs
from labcore.runs.spec.run_spec import make
from tests.app.asking import answers, trained
from tests.app.seeding import html, link, ran, seed
from tests.app.test_pages import labels
from tests.words import says


def said(test) -> str:
    return " ".join([html(test), *(element.value for kind in ("caption", "info", "warning", "error", "markdown")
                                   for element in getattr(test, kind))])


def by_key(elements, start: str):
    """The element whose key begins like this."""
    found, = [each for each in elements if each.key and each.key.startswith(start)]
    return found


# ---------------------------------------------------------------- the link


def test_a_link_and_back():
    query = {"runs": "a,b@40,base:c", "prompt": "x=", "answer": "y", "t": "0.5", "top_k": "3", "top_p": "0.9",
             "seed": "7", "n": "2", "max": "9", "view": "vote", "own": "1",
             "scorer": "judge@9", "by": "last", "ranked": "4"}
    place, faults = address.read(Place, query)
    assert not faults and address.written(place) == query
    assert place == Place(("a", "b@40", "base:c"), "x=", "y", 0.5, 3, 0.9, 7, 2, 9, "vote", True, scorer="judge@9",
                          by="last", ranked=4)
    assert address.written(address.read(Place, {"runs": "a"})[0]) == {"runs": "a"}


@pytest.mark.parametrize("query, words", [
    ({"t": "9"}, "t='9', which was ignored: Temperature τ is 9, outside its bounds"),
    ({"n": "99"}, "n='99', which was ignored: use a whole number from 1 to 8"),
    ({"seed": "-1"}, "seed='-1'"), ({"view": "x"}, "choose one of answers, vote, best"),
    ({"runs": "../x"}, "names no model"),
    ({"runs": "a,b,c,d,e"}, "3 models answer side by side, so d, e are left out")])
def test_what_does_not_fit_in_a_link_is_said(query, words):
    place, faults = address.read(Place, {"runs": "a", **query})
    assert words in faults[0].sentence and len(place.models) <= 3


# ---------------------------------------------------------------- the page


def test_without_a_run_there_is_one_thing_to_do(page, lab):
    seed(lab.store, "stopped", algorithm="grpo")  # it had no checkpoint yet
    test = page("playground")
    assert "Train one in the LLM lab" in labels(test)
    test.button[0].click()
    assert "Run" in labels(ran(test))


def test_the_newest_run_beside_its_base_is_asked_at_once(page, lab, grpo, asked):
    trained(lab.store, "sft")
    test = page("playground")
    spec, = asked.asked
    assert spec["models"] == [f"base:{grpo}", f"{grpo}@6"] and spec["job"] == "answer"
    assert (spec["temperature"], spec["seed"], spec["count"], spec["max_new_tokens"]) == (1.0, 0, 3, 8)
    assert spec["answer"] == "".join(sorted(spec["prompt"][:-1]))
    assert link(test) == {"runs": f"base:{grpo},{grpo}"}
    assert "the same random numbers for all models (seed 0)" in said(test)
    ran(test)
    assert len(asked.asked) == 1  # the answers are kept


def test_every_choice_is_in_the_link_and_in_the_question(page, lab, grpo, asked):
    test = page("playground", runs=f"{grpo}@2,start:{grpo}")
    assert asked.asked[-1]["models"] == [f"{grpo}@2", f"start:{grpo}"]
    by_key(test.slider, "playground:t").set_value(0.5)
    by_key(test.number_input, "playground:seed").set_value(4)
    by_key(test.number_input, "playground:limit").set_value(5)
    by_key(test.text_input, "playground:prompt").set_value("cab=")
    ran(test)
    last = asked.asked[-1]
    assert (last["temperature"], last["seed"], last["max_new_tokens"], last["prompt"]) == (0.5, 4, 5, "cab=")
    assert last["answer"] is None  # nobody knows what is right
    by_key(test.text_input, "playground:answer").set_value("abc")
    ran(test)
    assert asked.asked[-1]["answer"] == "abc"
    wanted = {"runs": f"{grpo}@2,start:{grpo}", "prompt": "cab=", "answer": "abc", "t": "0.5", "seed": "4", "max": "5"}
    assert link(test) == wanted
    assert page("playground", **wanted) and len([spec for spec in asked.asked if spec == asked.asked[-1]]) == 1


def test_a_second_choice_before_the_redraw_keeps_the_first(page, lab, grpo, asked):
    test = page("playground", runs=f"base:{grpo},{grpo}")
    by_key(test.text_input, "playground:prompt").set_value("cab=")
    by_key(test.number_input, "playground:seed").set_value(4)
    by_key(test.select_slider, "playground:stage:0").set_value(f"start:{grpo}")
    by_key(test.select_slider, "playground:stage:1").set_value(f"{grpo}@2")
    ran(test)
    assert link(test) == {"runs": f"start:{grpo},{grpo}@2", "prompt": "cab=", "seed": "4"}


def test_a_rerun_that_still_brings_the_link_of_before_does_not_undo_a_choice(page, lab, grpo, asked):
    test = page("playground", runs=grpo)
    by_key(test.number_input, "playground:seed").set_value(4)
    ran(test)
    test.query_params.clear()
    test.query_params["runs"] = grpo
    by_key(test.text_input, "playground:prompt").set_value("cab=")
    ran(test)
    assert link(test) == {"runs": grpo, "prompt": "cab=", "seed": "4"}


def test_a_slot_that_is_taken_away_and_the_next_one_that_is_moved(page, lab, grpo, asked):
    test = page("playground", runs=f"gone,{grpo},base:{grpo}")
    test.button(key="remove:0").click()
    by_key(test.select_slider, "playground:stage:1").set_value(f"{grpo}@2")
    ran(test)
    assert link(test)["runs"] == f"{grpo}@2"


def test_an_empty_right_answer_means_that_nobody_judges(page, lab, grpo, asked):
    test = page("playground", runs=grpo)
    known = asked.asked[-1]["answer"]
    by_key(test.text_input, "playground:answer").set_value("")
    ran(test)
    assert asked.asked[-1]["answer"] is None and by_key(test.text_input, "playground:answer").value == ""
    assert link(test)["answer"] == ""
    again = page("playground", **link(test))
    assert by_key(again.text_input, "playground:answer").value == ""
    by_key(again.text_input, "playground:answer").set_value(known)
    ran(again)
    assert "answer" not in link(again)


def test_the_stage_slider_walks_the_training_and_the_newest_stays_the_newest(page, lab, grpo, asked):
    test = page("playground", runs=grpo)
    stage = by_key(test.select_slider, "playground:stage:0")
    assert stage.options == ["untrained", "base", "step 2", "newest: step 6"]
    for name, words in ((f"base:{grpo}", f"base:{grpo}"), (f"{grpo}@2", f"{grpo}@2"), (f"{grpo}@6", grpo)):
        by_key(test.select_slider, "playground:stage:0").set_value(name)
        ran(test)
        assert link(test)["runs"] == words
        assert asked.asked[-1]["models"] == [name] or name == f"{grpo}@6"


def test_models_are_added_and_taken_away(page, lab, grpo, asked):
    other = trained(lab.store, "ppo")
    test = page("playground", runs=grpo)
    for wanted in (f"{grpo},{other}", f"{grpo},{other},base:{other}"):
        next(button for button in test.button if button.label == "Add a model").click()
        ran(test)
        assert link(test)["runs"] == wanted
    assert "Add a model" not in labels(test)
    test.button(key="remove:0").click()
    ran(test)
    assert link(test)["runs"] == f"{other},base:{other}"
    by_key(test.selectbox, "playground:run:0").set_value(grpo)
    ran(test)
    assert link(test)["runs"] == f"{grpo},base:{other}"


def test_a_run_without_prompts_is_sent_to_its_own_page(page, lab, grpo, asked):
    maze = seed_maze(lab.store)
    test = page("playground", runs=f"{maze},{grpo},gone")
    assert "cannot answer prompts" in said(test) and "There is no run “gone” here" in said(test)
    assert [link.proto.label for link in test.get("page_link") if "Open in" in link.proto.label] == ["Open in Maze"]
    assert asked.asked[-1]["models"] == [f"{grpo}@6"]


def seed_maze(store) -> str:
    return store.create(make(kind="maze", algorithm_key="q_learning", task_key="corridors"), mine=True)


def test_while_it_is_computed_the_page_says_so_and_it_can_be_stopped(page, lab, grpo, asked):
    asked.reply = lambda spec: None
    test = page("playground", runs=grpo)
    assert "The model answers" in said(test) and "Stop" in labels(test)
    next(button for button in test.button if button.label == "Stop").click()
    ran(test)
    assert asked.cancelled == [jobs.job_id(asked.asked[0])]


def shown(test) -> dict | None:
    """What the browser was given to draw."""
    found = [json.loads(element.proto.json)[0] for element in test.get("bidi_component")]
    return next((data for data in found if "reach" in data), None)


def test_the_last_answers_stay_while_the_next_are_made_and_go_with_a_fault(page, lab, grpo, asked):
    test = page("playground", runs=grpo)
    assert shown(test)["stale"] is False
    asked.reply = lambda spec: None
    by_key(test.number_input, "playground:seed").set_value(9)
    assert shown(ran(test))["stale"] is True and "The model answers" in said(test)
    asked.reply = lambda spec: "Something was wrong."
    by_key(test.number_input, "playground:seed").set_value(10)
    assert shown(ran(test)) is None and "Something was wrong" in said(test)


def test_a_fault_is_one_sentence_and_can_be_tried_again(page, lab, grpo, asked):
    asked.reply = lambda spec: "The model's tokenizer does not know 'é': write the prompt without."
    test = page("playground", runs=grpo, prompt="é=")
    assert "does not know 'é'" in said(test)
    asked.reply = answers
    next(button for button in test.button if button.label == "Try again").click()
    ran(test)
    assert "does not know" not in said(test) and len(asked.asked) == 2


def test_a_checkpoint_that_is_gone_is_told_by_the_model(page, lab, grpo, asked):
    test = page("playground", runs=f"{grpo}@3")
    stage = by_key(test.select_slider, "playground:stage:0")
    assert stage.value == f"{grpo}@3" and asked.asked[-1]["models"] == [f"{grpo}@3"]


def test_another_choice_stops_what_is_under_way_which_is_asked_anew_when_it_is_chosen_again(page, lab, grpo, asked):
    asked.reply = lambda spec: None
    test = page("playground", runs=grpo)
    first = asked.asked[0]
    by_key(test.number_input, "playground:seed").set_value(9)
    ran(test)
    assert asked.cancelled == [jobs.job_id(first)]
    jobs.fail(jobs.job_id(first), "This was stopped.")
    asked.reply = answers
    by_key(test.number_input, "playground:seed").set_value(0)
    ran(test)
    assert "This was stopped" not in said(test) and shown(test)["stale"] is False


def test_a_view_keeps_one_entry_however_much_it_asks(page, lab, grpo, asked):
    test = page("playground", runs=grpo)
    for seed_ in (1, 2, 3):
        by_key(test.number_input, "playground:seed").set_value(seed_)
        ran(test)
    kept = [key for key in test.session_state if key.split(":")[0] in ("asked", "job", "latest")]
    assert kept == ["asked:playground"]


def test_a_lab_that_is_closed_while_a_page_waits_is_one_sentence(page, lab, grpo, asked):
    asked.reply = lambda spec: None
    page("playground", runs=grpo)
    compute, calls = lab.launcher.compute, []

    def closed(spec):  # after the page has asked
        calls.append(spec)
        if len(calls) > 1:
            raise LabError("The lab is closed: start it again.")
        return compute(spec)
    lab.launcher.compute = closed
    test = page("playground", runs=grpo)
    assert [says(error.value, "closed", "start it again") for error in test.error] == [True]


# ---------------------------------------------------------------- what the browser is given


def test_a_base_has_no_rivals_of_its_own_base_and_colours_reach_round_numbers():
    found = answers({"models": ["a@3", "base:a"], "count": 1})
    found["columns"][0]["answers"][0]["base_logprobs"] = [-0.1, -0.9, -0.1, -0.1, -0.1]
    data = payload(found, ["A", "B"], ["GRPO sort #1", "GRPO sort #2"])
    assert [column["base"] for column in data["columns"]] == [False, True]
    assert data["reach"] == 1.0 and not data["stale"]
    assert reach(answers({"models": ["base:a"], "count": 1})) == 0.1
