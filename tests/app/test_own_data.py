"""The page before a run on the user's own file: what is said of it, what is tried, and what the buttons change."""

import json

import pytest
from streamlit.testing.v1 import AppTest

from app.draft import defaults
from app.training import own_data
from app.training import uploads as forms
from labcore.errors import LabError
from labcore.runs import jobs
from labcore.runs.files import uploads
from labcore.runs.spec.run_spec import make
from tests.app.asking import Answering, previewed
from tests.app.seeding import ran
from tests.every import now
from tests.words import says


def tried(spec):
    if spec["job"] == "data_preview":
        return previewed()
    return {"context": 2048, "longest": 5, "answers": [
        {"prompt": f"{n}+1=", "answer": str(n + 1), "text": "x", "reward": 0.0, "exact": False} for n in range(16)]}


@pytest.fixture
def opened(page, tmp_path, monkeypatch):
    """opened(model=…) opens the LLM lab with a file whose answers end in "#### number"."""
    path = tmp_path / "sums.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": f"{n}+1=", "answer": f"so\n#### {n + 1}"}) for n in range(30)))

    def with_file(**fields):
        monkeypatch.setattr("app.draft._of_url", lambda kind: {
            **defaults(kind), "task": "prompts", "steps": {}, "knobs": {}, "data": {"prompts": str(path)},
            **fields})
        return page("llm")
    return with_file


def words(test) -> str:
    return " ".join(element.value for element in test.markdown)


def pressed(test, label):
    next(button for button in test.button if button.label == label).click()
    return ran(test)


def test_the_file_is_looked_at_and_a_small_model_tried_at_once(lab, opened):
    asked = Answering(lab.launcher, tried)
    test = opened()
    assert "30 of 30 answers end in" in words(test) and "answered 0 of 16 before SFT" in words(test)
    assert trials(asked) == 1
    test = pressed(test, "Use the numeric verifier")
    assert "the verifier is exact" not in words(test) and "answered 0 of 16" in words(test)
    assert trials(asked) == 2, "another verifier may judge another way"
    test = pressed(test, "400 SFT steps first")
    assert "more SFT" not in words(test) and trials(asked) == 2, "SFT is no matter of the answers before it"
    test = pressed(test, "Choose small (0.8 M)")
    assert "This 0.8 M model" in words(test) and trials(asked) == 3


def trials(asked) -> int:
    """How often the model was asked to answer."""
    return sum(spec["job"] == "first_answers" for spec in asked.asked)


def captions(test) -> str:
    return " ".join(each.value for each in test.caption)


def test_what_is_held_out_is_said_and_a_second_file_takes_its_place(lab, page):
    rows = [json.dumps({"prompt": f"{n}+1=", "answer": str(n + 1)}) for n in range(40)]
    test = page("llm", algorithm="grpo", task="prompts")
    test.file_uploader[0].set_value(("sums.jsonl", "\n".join(rows[:30]).encode(), "text/plain"))
    test = ran(test)
    assert "sums.jsonl: 27 problems to train on, 3 problems held out." in captions(test)
    test.file_uploader[1].set_value(("test.jsonl", "\n".join(rows[29:]).encode(), "text/plain"))
    test = ran(test)
    assert "29 problems to train on, 11 problems held out." in captions(test)
    assert says(captions(test), "1 row of sums.jsonl", "not trained on", "test.jsonl")
    test.button(key="do:Run").click()
    [run] = ran(test) and lab.store.runs()
    assert uploads.file_at(run.spec.knobs["held_out_file"]).name == "test.jsonl"


@pytest.mark.long
def test_a_second_file_that_cannot_be_used_or_kept_can_be_taken_away(lab, page, monkeypatch):
    rows = [json.dumps({"prompt": f"{n}+1=", "answer": str(n + 1)}) for n in range(30)]
    test = page("llm", algorithm="grpo", task="prompts")
    test.file_uploader[0].set_value(("sums.jsonl", "\n".join(rows).encode(), "text/plain"))
    test = ran(test)
    test.file_uploader[1].set_value(("broken.jsonl", b"{", "text/plain"))
    test = ran(test)
    assert "broken.jsonl" in " ".join(each.value for each in test.error)
    test.file_uploader[1].set_value(None)
    test = pressed(ran(test), "Hold out a share instead")
    assert not test.error and "sums.jsonl: 27 problems to train on, 3 problems held out." in captions(test)

    def full(*_):
        raise LabError("The disk is full.")
    with monkeypatch.context() as without_room:
        test.file_uploader[1].set_value(("test.jsonl", rows[0].encode(), "text/plain"))
        without_room.setattr(forms, "keep", lambda name, content: full() if name == "test.jsonl" else uploads.keep(
            name, content))
        assert [each.value for each in ran(test).error] == ["The disk is full."]


def rows(count: int) -> bytes:
    return "\n".join(json.dumps({"prompt": f"{n}+1=", "answer": f"so {n + 1}"}) for n in range(count)).encode()


def fault(test) -> str:
    """Why no run can be started."""
    return test.button(key="do:Run").help if test.button(key="do:Run").disabled else ""


def test_no_file_is_lost_because_it_or_another_one_cannot_be_used(lab, page):
    """A second file that is broken, a setting that does not fit, and a broken file in place of a good one."""
    test = page("llm", algorithm="grpo", task="prompts")
    test.file_uploader[0].set_value(("sums.jsonl", rows(30), "text/plain"))
    ran(test).file_uploader[1].set_value(("broken.jsonl", b"{", "text/plain"))
    kept = test.session_state["draft:new-llm"]["data"]
    assert "broken.jsonl" in " ".join(each.value for each in ran(test).error)
    assert "cannot be used as it is" in fault(test)
    assert kept["prompts"].endswith("sums.jsonl") and "sums.jsonl: 27 problems to train on" in captions(test)
    test.file_uploader[1].set_value(None)
    test = pressed(ran(test), "Hold out a share instead")
    test.selectbox(key=verifier_key(test)).set_value("numeric")
    assert "The answer in line 1 of sums.jsonl" in ran(test).error[0].value and "cannot be used as it is" in fault(test)
    test.file_uploader[0].set_value(None)
    assert kept["prompts"].endswith("sums.jsonl") and "The answer in line 1 of sums.jsonl" in ran(test).error[0].value
    test.selectbox(key=verifier_key(test)).set_value("exact")
    assert not ran(test).error and not fault(test) and "sums.jsonl: 27 problems to train on" in captions(test)
    test.file_uploader[0].set_value(("broken.jsonl", b"{", "text/plain"))
    assert "broken.jsonl" in ran(test).error[0].value and fault(test)
    test.file_uploader[0].set_value(None)
    assert "sums.jsonl: 27 problems to train on" in captions(ran(test)) and not fault(test)


def test_a_file_of_prompts_alone_is_used_with_a_verifier_that_needs_no_answer(lab, page):
    test = page("llm", algorithm="grpo", task="prompts")
    asks = "\n".join(json.dumps({"prompt": f"Say something about {n}."}) for n in range(30))
    test.file_uploader[0].set_value(("asks.jsonl", asks.encode(), "text/plain"))
    said = " ".join(each.value for each in ran(test).error)
    assert says(said, "length, format, regex or json", "contains with a pattern") and fault(test)
    test = pressed(test, "Use the length verifier")
    assert not test.error and not fault(test) and "asks.jsonl: 27 problems to train on" in captions(test)
    test = pressed(test, "No SFT")
    test.button(key="do:Run").click()
    [run] = ran(test) and lab.store.runs()
    assert (run.spec.knobs["verifier"], run.spec.knobs["sft_steps"]) == ("length", 0)


@pytest.mark.long
def test_answers_that_the_verifier_cannot_read_have_a_button_for_one_that_can(lab, page):
    test = page("llm", algorithm="grpo", task="prompts", verifier="numeric")
    fractions = "\n".join(json.dumps({"prompt": f"{n}/8=", "answer": f"{n}/8"}) for n in range(30))
    test.file_uploader[0].set_value(("f.jsonl", fractions.encode(), "text/plain"))
    assert "is not a whole plain number" in " ".join(each.value for each in ran(test).error)
    assert not pressed(test, "Use the math verifier").error and not fault(test)


def verifier_key(test) -> str:
    return next(each.key for each in test.selectbox if each.label == "Verifier")


def test_a_file_too_small_to_hold_rows_out_says_so(page):
    test = page("llm", algorithm="dpo", task="preferences")
    test.file_uploader[0].set_value(("pairs.jsonl", PAIRS.encode(), "application/json"))
    assert says(captions(ran(test)), "pairs.jsonl", "9 rows", "fewer than 20", "none is held out")


def test_how_rows_are_measured_stays_only_where_it_was_chosen(opened):
    """Each loop has its own defaults: SFT draws one completion of a prompt, GRPO four."""
    def chosen(test, algorithm):
        next(each for each in test.selectbox if each.label == "Algorithm").set_value(algorithm)
        return ran(test)

    def values(test):
        return test.session_state["draft:new-llm"]["knobs"]["grpo:prompts"]
    assert values(chosen(opened(algorithm="sft"), "grpo"))["held_out_samples"] == 4
    begun = opened(algorithm="sft", knobs={"sft:prompts": {"held_out_samples": 3, "held_out": 0.2}})
    assert (values(chosen(begun, "grpo"))["held_out_samples"], values(begun)["held_out"]) == (3, 0.2)


PAIRS = "\n".join(json.dumps({"prompt": f"{n}?", "chosen": "yes", "rejected": "no", "answer": "yes"}) for n in range(9))


@pytest.mark.parametrize("task", now(["prompts", "preferences"], "prompts"))
def test_a_file_of_preferences_is_one_wherever_it_is_uploaded(page, lab, task):
    test = page("llm", algorithm="dpo", task=task)
    test.file_uploader[0].set_value(("pairs.jsonl", PAIRS.encode(), "application/json"))
    test = ran(test)
    said = " ".join(each.value for each in test.caption)
    assert not test.error and "pairs.jsonl: 9 pairs" in said
    assert ("so the task is now Your own preferences" in said) == (task == "prompts")
    test.button(key="do:Run").click()
    assert [run.spec.task for run in ran(test) and lab.store.runs()] == ["preferences"]


def test_preferences_for_what_learns_from_rewards_are_refused_in_one_sentence(page, lab):
    test = page("llm", algorithm="grpo", task="prompts")
    test.file_uploader[0].set_value(("pairs.jsonl", PAIRS.replace(', "answer": "yes"', "").encode(), "text/plain"))
    assert "GRPO learns from prompts with answers" in ran(test).error[0].value


def test_a_comparison_takes_the_algorithms_that_learn_from_the_file(page, lab):
    test = page("compare")
    next(each for each in test.selectbox if each.label == "Task").set_value("prompts")
    test = ran(test)
    test.file_uploader[0].set_value(("pairs.jsonl", PAIRS.replace(', "answer": "yes"', "").encode(), "text/plain"))
    test = ran(test)
    assert "so the task is now Your own preferences" in " ".join(each.value for each in test.caption)
    assert next(each for each in test.multiselect if each.label == "Algorithms").value == ["dpo"]


@pytest.mark.long
def test_a_comparison_holds_out_a_second_file_for_all_of_its_algorithms(page, lab):
    test = page("compare")
    next(each for each in test.selectbox if each.label == "Task").set_value("prompts")
    ran(test).file_uploader[0].set_value(("sums.jsonl", rows(30), "text/plain"))
    ran(test).file_uploader[1].set_value(("test.jsonl", rows(5), "text/plain"))
    next(each for each in ran(ran(test)).button if each.label.startswith("Start")).click()
    held = {uploads.file_at(run.spec.knobs["held_out_file"]).name for run in ran(test) and lab.store.runs()}
    assert held == {"test.jsonl"} and len({run.spec.algorithm for run in lab.store.runs()}) > 1


def test_a_large_model_is_tried_on_a_click_and_the_run_can_start_all_the_same(lab, opened):
    asked = Answering(lab.launcher, lambda spec: None)
    test = opened(model="medium")
    assert not trials(asked) and "answered" not in words(test)
    test = pressed(test, "Try 16 prompts on this model")
    assert len({jobs.job_id(spec) for spec in asked.asked if spec["job"] == "first_answers"}) == 1
    test = pressed(test, "Run")
    assert [run.spec.model for run in lab.store.runs()] == ["medium"]


def test_what_the_job_refuses_is_said(lab, opened):
    Answering(lab.launcher, lambda spec: previewed() if spec["job"] == "data_preview" else
              "The tokenizer cannot be loaded: save it again.")
    test = opened()
    assert "The tokenizer cannot be loaded" in " ".join(element.value for element in test.error)


def test_without_a_file_nothing_is_said(lab, page):
    test = page("llm", task="prompts")
    assert "answers" not in words(test) and not jobs.root().exists()


@pytest.mark.parametrize("model, limit, at_once", [
    ("tiny", 192, True), ("tiny", 193, False), ("small", 64, True), ("small", 65, False), ("medium", 8, False),
    ("org/model", 8, False)])
def test_only_what_takes_less_than_two_seconds_starts_by_itself(model, limit, at_once):
    spec = make(algorithm_key="grpo", task_key="add", model=model, knobs={"max_new_tokens": limit})
    assert own_data.at_once(spec) is at_once


# ---------------------------------------------------------------------------- how the model reads the data


def none_tried(found):
    """A launcher's answers: of the preview `found`, of the model's own answers none yet."""
    return lambda spec: found if spec["job"] == "data_preview" else None


def test_the_rows_are_shown_as_the_model_reads_them(lab, opened):
    asked = Answering(lab.launcher, none_tried(previewed()))
    test = opened()
    assert "30 rows in the layout “prompt and answer”" in words(test)
    assert "Prompts have 3 to 12 tokens (median 5, 90 % up to 8)" in words(test)
    assert says(words(test), "Other fields", "reward functions", "level")
    assert sum(says(each.label, "2 rows", "model reads") for each in test.expander) == 1
    (job,) = [spec for spec in asked.asked if spec["job"] == "data_preview"]
    assert json.loads(job["spec"])["task"] == "prompts" and json.loads(job["spec"])["algorithm"] == "sft"


NONE = {"count": 0, "lines": [], "why": ""}


@pytest.mark.parametrize("found, words_said, label, knob", [
    ({"template": "none"}, "the chat template is off", "Use the model's template", ("template", "auto")),
    ({"template": "none", "has_template": False, "conversations": 30, "refused": {**NONE, "count": 30}},
     "Every prompt is a conversation, and no chat template is in use", "Use ChatML", ("template", "chatml")),
    ({"refused": {"count": 2, "lines": [3, 8], "why": "It is refused."}},
     "2 rows cannot be rendered, so the run does not start: lines 3, 8. It is refused.", "Leave out these rows",
     ("unusable_rows", "skip")),
    pytest.param({"long": {"count": 25, "lines": [*range(1, 21)], "longest": 90}},
                 "25 prompts of more than the 36 tokens that the context leaves beside a completion of 64",
                 "Leave out long prompts", ("long_prompts", "skip"), marks=pytest.mark.long),
    pytest.param({"long": {"count": 1, "lines": [4], "longest": 90}}, "line 4; the longest has 90",
                 "Cut their beginning", ("long_prompts", "cut"), marks=pytest.mark.long)])
def test_what_does_not_fit_has_a_button(lab, opened, found, words_said, label, knob):
    asked = Answering(lab.launcher, none_tried(previewed(**found)))
    test = opened()
    assert words_said in words(test)
    test = pressed(test, label)
    key, value = knob
    last = json.loads([spec for spec in asked.asked if spec["job"] == "data_preview"][-1]["spec"])
    assert last["knobs"][key] == value


def test_a_real_model_shows_the_prompts_of_the_built_in_tasks_too(lab, page, tmp_path):
    found = {key: value for key, value in previewed().items() if key in ("context", "room", "template", "has_template",
                                                                         "shown")}
    asked = Answering(lab.launcher, none_tried(found))
    (tmp_path / "model").mkdir()
    test = page("llm", task="add", model=str(tmp_path / "model"))
    assert "2 prompts as the model reads them" in [each.label for each in test.expander]
    assert [json.loads(spec["spec"])["task"] for spec in asked.asked if spec["job"] == "data_preview"] == ["add"]
    test = page("llm", task="add", model="org/model")
    assert "Show the prompts as this model reads them" in [button.label for button in test.button]
    assert not [each for each in page("llm", task="add").expander if "as the model reads" in each.label]


# ---------------------------------------------------------------------------- files that the page must ask about


def uploaded(test, name: str, content: str):
    test.file_uploader[0].set_value((name, content.encode(), "text/plain"))
    return ran(test)


def test_columns_with_names_of_their_own_are_chosen(lab, page):
    Answering(lab.launcher, none_tried(previewed(2)))
    test = uploaded(page("llm", algorithm="grpo", task="prompts"), "x.csv", "ask,reply,level\n2+3=,5,a\n1+1=,2,b\n")
    assert "no field 'prompt'" in test.error[0].value
    shown = {each.label: each for each in test.selectbox}
    assert [*shown["Prompt column"].options] == ["none", "ask", "reply", "level"]
    shown["Prompt column"].set_value("ask")
    test = ran(test)
    next(each for each in test.selectbox if each.label == "Answer column").set_value("reply")
    test = ran(test)
    assert not test.error and "x.csv: 2 problems" in " ".join(each.value for each in test.caption)
    assert {each.label for each in test.selectbox} >= {"Prompt column"}, "the choice can be changed"
    test.button(key="do:Run").click()
    assert [run.spec.knobs["fields"] for run in ran(test) and lab.store.runs()] == ["prompt=ask,answer=reply"]


def test_a_file_that_is_recognised_asks_nothing(lab, page):
    Answering(lab.launcher, none_tried(previewed(1)))
    test = uploaded(page("llm", task="prompts"), "x.csv", "question,answer\n2+3=,5\n")
    assert not [each for each in test.selectbox if each.label.endswith(" column")]


def test_rows_that_cannot_be_used_are_left_out_by_a_button(lab, page):
    Answering(lab.launcher, none_tried(previewed(2)))
    lines = '{"prompt": "2+3=", "answer": "5"}\n{"prompt": "1+1="}\n{"prompt": "1+2=", "answer": "3"}\n'
    test = uploaded(page("llm", task="prompts"), "x.jsonl", lines)
    assert "no field 'answer'" in test.error[0].value
    test = pressed(test, "Leave out 1 row")
    assert not test.error and "x.jsonl: 2 problems" in " ".join(each.value for each in test.caption)


def test_a_dataset_of_the_hub_is_fetched_by_its_name(lab, page, tmp_path):
    path = uploads.keep("sums-train.jsonl", b'{"prompt": "2+3=", "answer": "5"}\n')
    replies = {"dataset": {"path": str(path), "note": "These are the first 1 rows."}, "data_preview": previewed(1)}
    asked = Answering(lab.launcher, lambda spec: replies.get(spec["job"]))
    test = page("llm", task="prompts")
    test.text_input(key="hub:new-llm:prompts").set_value("org/sums:train")
    test = ran(test)
    captions = " ".join(each.value for each in test.caption)
    assert "sums-train.jsonl: 1 problem" in captions and "the first 1 rows" in captions
    assert {"job": "dataset", "name": "org/sums:train"} in asked.asked


def test_a_dataset_that_cannot_be_fetched_is_said(lab, page):
    Answering(lab.launcher, lambda spec: "The hub has no dataset 'org/x' that is open to you: check the spelling.")
    test = page("llm", task="prompts")
    test.text_input(key="hub:new-llm:prompts").set_value("org/x")
    assert "The hub has no dataset" in ran(test).error[0].value


def a_file_that_vanishes(path):
    """A page whose counts are drawn alone after the file of the run was deleted."""
    from pathlib import Path

    import streamlit as st

    from app.draft import Draft
    from app.training.knobs import _counts

    draft = Draft(None, "llm")
    draft.choose("task", "prompts")
    draft.fields["data"] = {"prompts": path}
    st.text(draft.fault())
    if not draft.fault():
        Path(path).unlink()
        _counts(draft, "")


def test_a_file_that_vanishes_while_a_page_is_open_is_missed_at_its_next_look(tmp_path):
    path = tmp_path / "sums.jsonl"
    path.write_text('{"prompt": "1+1=", "answer": "2"}\n' * 20)
    test = AppTest.from_function(a_file_that_vanishes, args=(str(path),), default_timeout=30).run()
    assert not test.exception and f"There is no file {path}" in test.text[0].value
