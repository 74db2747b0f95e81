"""The page before a run on the user's own file: what is said of it, what is tried, and what the buttons change."""

from __future__ import annotations

import json

import pytest

from app import session
from app.training import own_data
from labcore.jobs import jobs
from labcore.spec.run_spec import make
from tests.app.asking import Answering, previewed
from tests.app.seeding import ran


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
        monkeypatch.setattr(session, "_of_url", lambda kind: {
            **session.defaults(kind), "task": "prompts", "steps": {}, "knobs": {}, "data": {"prompts": str(path)},
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


PAIRS = "\n".join(json.dumps({"prompt": f"{n}?", "chosen": "yes", "rejected": "no", "answer": "yes"}) for n in range(9))


@pytest.mark.parametrize("task", ["prompts", "preferences"])
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
