"""The process reward model's loop: the loss and the gradient are those of transformers' token classification on TRL's
labels, and held-out answers are never learnt from."""

import json
import math

import pytest
import torch
from transformers import LlamaForTokenClassification

from labcore.errors import LabError
from labcore.llm.loops import prm
from labcore.llm.step_labels import of_rows
from labcore.tasks.task import Problem
from tests.llm.tools import records, session, shake, weights

ROWS = [Problem("ab=", "", 1, columns={"completions": ["a", "bb"], "labels": [True, False]}),
        Problem("c", "", 2, columns={"completions": ["abc", "a", "b"], "labels": [1, 1, 0]}),
        Problem("=", "", 3, columns={"completions": ["c"], "labels": [True]})]


def started(**given):
    made = session("prm", step_separator=";", **given)
    shake(made.models["process_reward_model"])
    return made


def peer(made):
    """transformers' own token classifier with the weights of the session's model."""
    model = made.models["process_reward_model"]
    config = model.config.__class__.from_dict({**model.config.to_dict(), "num_labels": 2})
    found = LlamaForTokenClassification(config)
    found.model.load_state_dict(model.trunk.state_dict())
    found.score.load_state_dict(model.head.state_dict())
    return found.eval()


@pytest.mark.parametrize("last_step_only", [False, True])
def test_an_update_has_the_loss_and_the_gradient_of_transformers_token_classifier(last_step_only):
    """TRL trains AutoModelForTokenClassification on these labels; its loss is the mean over the labelled tokens."""
    made = started(last_step_only=last_step_only)
    found, model = of_rows(made, ROWS), made.models["process_reward_model"]
    theirs, losses, count = peer(made), [], 0
    for problem, answer, labels in zip(ROWS, found.answers, found.labels, strict=True):
        ids, given = list(made.tokenizer(problem.prompt)["input_ids"]), []
        given += [-100] * len(ids)
        for place, (step, label) in enumerate(zip(answer.ids, labels, strict=True)):
            ids += step
            learnt = not last_step_only or place == len(labels) - 1
            given += [-100] * (len(step) - 1) + [int(label) if learnt else -100]
        here = sum(label != -100 for label in given)
        losses.append(theirs(input_ids=torch.tensor([ids]), labels=torch.tensor([given])).loss * here)
        count += here
    loss = sum(losses) / count
    loss.backward()
    expected = torch.cat([part.grad.flatten() for part in (*theirs.model.parameters(), *theirs.score.parameters())])
    value, accuracy, tokens = prm.gradients(made, found)
    got = torch.cat([part.grad.flatten() for part in (*model.trunk.parameters(), *model.head.parameters())])
    assert value == pytest.approx(loss.item(), rel=1e-5) and tokens == 15 and 0 <= accuracy <= 1
    torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-4)


def test_it_starts_undecided_and_leaves_the_policy_alone():
    made = session("prm", steps=6, learning_rate=3e-3, eval_every=6)
    before = weights(made.policy)
    rows = records(made)
    assert rows[0].metrics["loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert rows[-1].metrics["loss"] < rows[0].metrics["loss"]
    assert torch.equal(weights(made.policy), before)
    assert {"eval_step_accuracy", "eval_first_error", "eval_step_score", "eval_step_right"} <= rows[-1].metrics.keys()


def test_what_is_measured_can_be_looked_at():
    first, second = records(session("prm", steps=2, eval_every=5), pictures=True)
    assert first.samples["step"] == 1 and len(first.samples["answers"]) == 8
    for answer in first.samples["answers"]:
        assert len(answer["steps"]) == len(answer["scores"]) == len(answer["labels"])
    shown = first.samples["steps"]
    assert len(shown["scores"]) == len(shown["labels"]) and set(shown["labels"]) <= {0.0, 1.0}
    assert "eval_step_accuracy" in second.metrics, "the last step is measured"


def test_the_measures_of_held_out_steps_by_hand():
    scores = torch.tensor([[0.9, 0.6, float("nan")], [0.8, 0.4, 0.7]], dtype=torch.float64)
    right = torch.tensor([[True, False, False], [True, False, False]])
    steps = ~scores.isnan()
    found = prm._measures(scores, right, steps)
    assert found == pytest.approx({"eval_step_accuracy": 3 / 5, "eval_step_auc": 1.0, "eval_first_error": 0.5,
                                   "eval_step_score": 3.4 / 5, "eval_step_right": 2 / 5})


def test_a_prompt_s_answers_are_ranked_by_the_scores_of_their_steps():
    made = session("prm")
    scores = torch.tensor([[0.9, 0.1], [0.5, 0.6], [0.8, float("nan")], [0.3, 0.9]], dtype=torch.float64)
    right = torch.tensor([[False, True], [True, False]])
    assert prm._reranked(made, scores, right) == {
        "best_of_n/sampled": 0.5, "best_of_n/any": 1.0, "best_of_n/lowest": 1.0, "best_of_n/product": 1.0,
        "best_of_n/last": 0.5}  # the last: 0.6 against 0.1 right, 0.8 against 0.9 wrong


def file_of(tmp_path, rows):
    path = tmp_path / "steps.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def line(prompt, *steps, labels=None):
    return {"prompt": prompt, "completions": [*steps], "labels": labels or [True] * len(steps)}


def test_a_file_in_trl_s_layout_is_learnt_from_and_part_of_it_held_out(tmp_path):
    rows = [line(f"{place}?", "one", "two", labels=[True, place % 2 == 0]) for place in range(10)]
    made = session("prm", letters=False, task="prompts", data=file_of(tmp_path, rows), steps=2)
    assert made.spec.knobs["step_labels"] == "dataset" and made.spec.knobs["step_separator"] == "\\n"
    held = prm.split(made)
    prompts = {problem.prompt for problem in held.problems}
    assert len(prompts) == 2 and not prompts & {row.prompt for row in made.task.rows} and len(made.task.rows) == 8
    made = session("prm", letters=False, task="prompts", data=file_of(tmp_path, rows), steps=2)
    assert {problem.prompt for problem in prm.split(made).problems} == prompts, "a resumed run has the same"
    assert all(record.metrics["grad_norm"] > 0 for record in records(made))


@pytest.mark.parametrize("rows, knobs, said", [
    ([line("a", "x", "y", labels=[True]), line("b", "x")], {}, "Line 1 has 2 steps in 'completions' and 1 labels"),
    ([line("a", "x")], {}, "one row with step labels"),
    ([line("a", "xy"), line("b", "x")], {"step_separator": ""}, "Line 1 has a step of 2 tokens"),
    ([{"prompt": "a", "answer": "b"}], {}, "Line 1 has no steps"),
    ([{"prompt": "a", "answer": "b"}], {"step_labels": "step_verifier"}, "judges whole answers only")])
def test_a_file_that_cannot_be_used_is_refused_in_words(tmp_path, rows, knobs, said):
    with pytest.raises(LabError, match=said):
        records(session("prm", letters=False, task="prompts", data=file_of(tmp_path, rows), **knobs))


def test_steps_that_hold_the_separator_are_said_once(tmp_path):
    rows = [line(f"{place}?", "one\nmore", "two") for place in range(5)]
    made = session("prm", letters=False, task="prompts", data=file_of(tmp_path, rows), steps=2)
    first, second = records(made)
    assert any("5 of 10 steps in the file contain the step separator" in note for note in first.notes)
    assert not any("separator" in note for note in second.notes)
