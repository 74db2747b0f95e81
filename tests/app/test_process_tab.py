"""The tab of a process reward model, and the steps of answers in the story and the microscope: what they hold."""

import pytest
import torch

from app.llm import process_tab, step_groups, story
from app.llm.microscope import arithmetic
from labcore.catalog import choices
from labcore.maths.call import call, member
from labcore.runs.store.rows import Step
from tests.words import says

STEPS = {"scores": [0.9, 0.4, 0.6, 0.1], "labels": [1.0, 1.0, 0.0, 0.0]}


def test_the_words_count_the_steps():
    assert says(process_tab.words(STEPS), "4 held-out steps", "50 %", "labelled right", "agrees", "50 %", "labels")


def test_every_step_is_in_the_histogram_on_the_side_of_its_label():
    right, wrong = process_tab.scores_figure(STEPS, "light").data
    assert [x for x, y in zip(right.x, right.y, strict=True) if y] == pytest.approx([0.425, 0.925])
    assert [x for x, y in zip(wrong.x, wrong.y, strict=True) if y] == pytest.approx([0.125, 0.625])
    assert sum(right.y) == 2 and sum(wrong.y) == -2


def test_the_measures_are_drawn_over_the_steps():
    steps = [Step(1, 0, 0, 0.1, {"eval_step_auc": 0.5, "eval_first_error": 0.1}), Step(2, 0, 0, 0.2, {}),
             Step(3, 0, 0, 0.3, {"eval_step_auc": 0.8, "eval_first_error": 0.4})]
    auc, first = process_tab.measures_figure(steps, None, "dark").data
    assert (auc.x, auc.y) == ((1, 3), (0.5, 0.8)) and (first.name, first.y) == ("first errors", (0.1, 0.4))


def test_no_name_of_a_curve_covers_another():
    """Accuracy and AUC often end at about the same share."""
    steps = [Step(1, 0, 0, 0.1, {"eval_step_auc": 0.73, "eval_step_accuracy": 0.7, "eval_first_error": 0.2})]
    names = {name.text: name.y for name in process_tab.measures_figure(steps, None, "light").layout.annotations
             if name.xref != "paper"}
    heights = sorted(names[name] for _, name in process_tab.CURVES)
    assert heights == pytest.approx([0.2, 0.7, 0.7 + process_tab.NAME]) and names["steps"] < names["AUC"]


def test_what_a_model_wrote_is_escaped_and_each_step_has_its_score():
    found = process_tab.answers_table([{"prompt": "a<b>", "steps": ["<i>", ""], "scores": [0.91, 0.2],
                                        "labels": [1.0, 0.0]}])
    assert "<b>" not in found and "<i>" not in found and "&lt;i&gt;" in found
    judged = process_tab.step_card("b", 0.9, 0.0, "the verifier says")
    assert "score 0.90, the verifier says wrong" in judged and "underline wavy" in judged
    unjudged = process_tab.step_card("b", 0.9, None)
    assert "title='score 0.90'" in unjudged and "underline wavy" not in unjudged
    assert "0.91" in found and "score 0.20, labelled wrong" in found and found.count("underline wavy") == 1


def completion(**more):
    return {"text": "2*3", "tokens": ["2", "*", "3", ""], "step_scores": [None, 0.9, 0.2, 0.5],
            "step_gold": [None, 1.0, 0.0, 0.0], "exact": False, "reward": 1.6, "advantage": 0.1, **more}


def test_the_story_has_the_steps_of_an_answer_with_score_and_verdict():
    group = step_groups.of_batch({"prompt": "p", "completions": [completion()]})
    assert group["answers"][0]["steps"] == [["2*", 0.9, 1.0], ["3", 0.2, 0.0], ["", 0.5, 0.0]]
    row = story._row(group["answers"][0], [], 0.0)
    assert row["steps"] == group["answers"][0]["steps"]
    plain = step_groups.of_batch({"prompt": "p", "completions": [completion(step_scores=None, step_gold=None)]})
    assert plain["answers"][0]["steps"] == []


def test_a_temperature_near_0_makes_no_number_that_is_wrong():
    """e^(1/T) is too large for the arithmetic."""
    knobs = {"step_reward": "min_form", "min_temperature": 0.001}
    _, reward = arithmetic._step(completion(step_scores=[0.0, 0.1]), 0, knobs)
    assert (reward.worked, reward.result) == ("", "–")


@pytest.mark.parametrize("choice", choices.STEP_REWARD.members, ids=lambda choice: choice.key)
def test_the_microscope_works_out_the_reward_of_each_step(choice):
    knobs = {"step_reward": choice.key, "min_temperature": 0.1}
    expected = call(member(choices.STEP_REWARD, choice.key), knobs, {
        "scores": torch.tensor([[0.9, 0.2, 0.5]], dtype=torch.float64), "steps": torch.ones(1, 3, dtype=torch.bool)})
    assert arithmetic._step(completion(), 0, knobs) == []
    for place, value in enumerate(expected[0].tolist()):
        score, reward = arithmetic._step(completion(), place + 1, knobs)
        assert score.note == f"the verifier says: {'right' if place == 0 else 'wrong'}"
        assert reward.worked and float(reward.result.replace("−", "-")) == pytest.approx(value, abs=1e-4)
