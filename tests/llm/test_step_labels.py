"""Where step labels come from: the verifier of beginnings, and the outcome of rollouts."""

import pytest

from labcore.llm import step_labels
from labcore.llm.generation import Sampling, continued
from labcore.llm.step_labels import next_answers
from labcore.tasks.task import Problem
from tests.llm.tools import Letters, session


def test_the_verifier_labels_every_beginning_and_the_end_of_an_ended_answer():
    made = session("prm", max_new_tokens=5)
    found = next_answers(made)
    assert len(found.problems) == 4 and len(found.answers) == 16 and found.gold is None
    for row, (answer, labels) in enumerate(zip(found.answers, found.labels, strict=True)):
        problem, ended = found.problems[row // 4], answer.texts[-1] == ""
        for step, label in enumerate(labels):
            last = ended and step == len(labels) - 1
            expected = made.task.score(problem, answer.beginning(step)).exact if last else (
                made.task.can_become_right(problem, answer.beginning(step)))
            assert label == float(expected)
    assert {label for row in found.labels for label in row} == {0.0, 1.0}


class Any(Letters):
    """Every answer of at most four letters is right."""

    def score(self, problem, completion):
        found = super().score(problem, completion)
        return type(found)(float(len(completion) <= 4), len(completion) <= 4)

    def can_become_right(self, problem, beginning):
        return len(beginning) <= 4


@pytest.mark.parametrize("hard", [True, False])
def test_rollouts_label_a_step_by_their_outcome(hard):
    """Three more letters make answers too long that could have ended."""
    made = session("prm", step_labels="monte_carlo", hard_labels=hard, max_new_tokens=3, label_rollouts=2)
    made.task = Any()
    found = next_answers(made)
    assert found.gold and [[len(row)] for row in found.gold] == [[len(row)] for row in found.labels]
    for answer, labels, gold in zip(found.answers, found.labels, found.gold, strict=True):
        for step, (label, true) in enumerate(zip(labels, gold, strict=True)):
            assert label in ((0, 1) if hard else (0, 0.5, 1))
            assert true == float(len(answer.beginning(step)) <= 4)
    assert found.labels != found.gold


def test_a_rollout_goes_on_from_the_beginning():
    made = session("prm")
    begun = made.tokenizer("xy")["input_ids"]
    texts = continued(made, made.policy, [Problem("ab=", ""), Problem("c", "")], [begun, begun[:1]], 3,
                      Sampling(max_new_tokens=4))
    assert len(texts) == 6 and all(text.startswith("xy") for text, _ in texts[:3])
    assert all(text.startswith("x") for text, _ in texts[3:]) and len(set(texts)) > 2


def test_a_rollout_says_whether_it_has_ended():
    made = session("prm")
    drawn = continued(made, made.policy, [Problem("ab=", "")] * 16, [made.tokenizer("xy")["input_ids"]] * 16, 4,
                      Sampling(max_new_tokens=8))
    lengths = {over: {len(text) for text, each in drawn if each is over} for over in (True, False)}
    assert min(lengths[False]) == 2 + 8 and min(lengths[True]) < 2 + 8


@pytest.mark.parametrize("hard, label", [(True, 1.0), (False, 0.25)])
def test_a_rollout_that_the_limit_cuts_off_is_not_right(hard, label, monkeypatch):
    """Of 4 with a right text one has ended, or none."""
    made = session("prm", step_labels="monte_carlo", hard_labels=hard, max_new_tokens=3, label_rollouts=4)
    made.task = Any()
    for ended, expected in ((0, label), (None, 0.0)):
        monkeypatch.setattr(step_labels, "continued", lambda session, model, problems, begun, count, how, ended=ended: [
            ("a", place == ended) for _ in begun for place in range(count)])
        found = next_answers(made)
        assert {row[step] for answer, row in zip(found.answers, found.labels, strict=True)
                for step in range(len(row) - 1)} == {expected}
