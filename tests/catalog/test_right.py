"""The name of what is right: never an exact match where another text than the answer is accepted."""

import json

import numpy as np
import pytest

from labcore.catalog.exact import ALGORITHMS as EXACT
from labcore.catalog.exact import TASKS as ENUMERABLE
from labcore.catalog.llm import environments
from labcore.catalog.llm.algorithms import ALGORITHMS as LLM
from labcore.catalog.llm.tasks import TASKS, VERIFIERS
from labcore.catalog.right import check, in_run, named, right
from labcore.tasks.task import Problem, make_task

# A completion that is accepted and is not the answer; tasks without one have one right text.
OTHERS = {"countdown": (Problem("2,7,3:13=", "2*3+7"), "3*2+7"), "reviews": (Problem("the plot was ", "good"), "bad"),
          "sorted": (Problem("a", "abc"), "aab"),
          "guess": (Problem("1-7?", "", columns={"secret": 4, "highest": 7}), "4")}
SAID = {"numeric": ("17", "it is 17.0"), "regex": ("17", "so 17"), "contains": ("1", "1=9@QN@<L"),
        "length": ("17", "no"), "math": ("3/4", "0.75"), "choice": ("B", "(B)"), "json": ("[1]", "[1 ]"),
        "format": ("1", " 1")}


@pytest.mark.parametrize("key", [*TASKS, *ENUMERABLE])
def test_a_task_that_accepts_another_text_names_no_exact_match(key, tmp_path):
    row = {**TASKS, **ENUMERABLE}[key]
    if row.data:
        return
    knobs = {knob.key: knob.default for knob in row.knobs}
    task = make_task(row, knobs)
    if key in OTHERS:
        assert task.score(*OTHERS[key]).exact and OTHERS[key][1] != OTHERS[key][0].answer
    problem = task.problems(1, np.random.default_rng(0))[0]
    assert task.score(problem, problem.answer).exact
    assert (right(row, knobs) == "Exact match") == (
        key not in (*OTHERS, "two_modes", *(row.key for row in environments.ROWS)))


@pytest.mark.parametrize("key", [*TASKS, *ENUMERABLE])
def test_only_rewards_that_are_all_or_nothing_are_shown_as_the_share_of_right_completions(key):
    row = {**TASKS, **ENUMERABLE}[key]
    if row.data:
        return
    defaults = {knob.key: knob.default for knob in row.knobs}
    algorithm = (EXACT if key in ENUMERABLE else LLM)["grpo"]
    for chosen in [{}, *({knob.key: value} for knob in row.knobs for value in knob.choices)]:
        knobs = {**defaults, **chosen, "reward_source": "verifier"}
        share = in_run("reward", algorithm, row, knobs).share
        assert share == row.all_or_nothing(knobs)
        task = make_task(row, knobs)
        problem = task.problems(1, np.random.default_rng(0))[0]
        answer = problem.answer
        tried = [answer, answer[:-1], answer[:1] + answer, answer[::-1], "", OTHERS.get(key, ("", ""))[1]]
        scores = [task.score(problem, text) for text in tried] if share else []
        assert all(score.reward == score.exact for score in scores), f"{key} {chosen}"
    assert not in_run("reward", algorithm, row, {**defaults, "reward_source": "reward_model"}).share
    assert not in_run("reward", algorithm, row, defaults).share, "of another trainer"
    verified = {**defaults, "reward_source": "verifier"}
    for metric in ("reward", "exact_match", "kl"):  # lists and Compare ask for each of thousands of runs
        assert in_run(metric, algorithm, row, verified) is in_run(metric, algorithm, row, dict(verified))


@pytest.mark.parametrize("key", ["prompts", "text"])
@pytest.mark.parametrize("verifier", VERIFIERS)
def test_a_verifier_that_accepts_another_text_names_no_exact_match(key, verifier, tmp_path):
    answer, other = SAID.get(verifier, ("17", "17"))
    path = tmp_path / "mine"
    path.write_text(json.dumps({"prompt": "?", "answer": answer}) if key == "prompts" else "a" * 200)
    row = TASKS[key]
    knobs = {knob.key: knob.default for knob in row.knobs} | {"verifier": verifier, "pattern": "1"}
    assert make_task(row, knobs, path).score(Problem("?", answer), other).exact
    assert (right(row, knobs) == "Exact match") == (verifier == "exact") == (answer == other)
    assert check(row, knobs) == right(row, knobs)[0].lower() + right(row, knobs)[1:]


def test_only_right_completions_are_named_after_their_check():
    assert named("exact_match", "Correct number").label == "Correct number"
    assert named("reward", "Correct number").label == "Reward"
    assert named("exact_match", "").label == "Accepted completions", "where runs differ in what they check"
