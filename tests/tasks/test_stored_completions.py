"""Stored completions: what is read of a step's file, and the scores of verifiers and judges."""

import json
import math

import pytest

from labcore.errors import LabError
from labcore.runs.files import step_files
from labcore.runs.files.paths import run_folder
from labcore.runs.files.written import Damaged
from labcore.tasks.reward_call import Asked
from labcore.tasks.stored_completions import Stored, by_verifier, read
from labcore.tasks.task import Problem, Turn
from labcore.watch.converting.samples import samples_of
from tests.words import saying


def put(step, *completions, **group):
    return step_files.write(run_folder("a-run") / "samples", step, json.dumps(
        {"step": step, "groups": [{"prompt": "2+2=", "answer": "4", "completions": [*completions]} | group]}))


def test_what_another_tool_left_out_is_empty_and_no_number_is_no_reward():
    put(3, {"text": "4", "reward": 1}, {"text": "5"}, {"text": "6", "reward": "high"}, {"text": "7", "reward": None},
        {"text": "8", "reward": 0.5, "truncated": True}, answer=None)
    rows = list(read("a-run", [3], None))
    assert {(row.step, row.group, row.problem.prompt, row.problem.answer) for row in rows} == {(3, 0, "2+2=", "")}
    assert [row.reward for row in rows if not math.isnan(row.reward)] == [1.0, 0.5] and rows[-1].cut
    step_files.write(run_folder("a-run") / "samples", 4, '{"step": 4, "pairs": []}')
    assert list(read("a-run", [4], None)) == []


def test_a_conversation_of_another_tool_is_judged_by_its_turns_and_the_last_text_of_the_model():
    system, user = {"role": "system", "content": "Add."}, {"role": "user", "content": "2+2?"}
    tools = [{"role": "assistant", "content": "wait"}, {"role": "tool", "content": "4"},
             {"role": "assistant", "content": "It is 4"}]
    for step, talk in ((5, [system, user]), (6, [user])):
        step_files.write(run_folder("a-run") / "samples", step, json.dumps(samples_of({"groups": [
            {"prompt": talk, "answer": "4", "completions": [{"text": tools}]}]}, step)))
    two, one = read("a-run", [5, 6], None)
    assert [(row.problem.prompt, row.text) for row in (two, one)] == [("2+2?", "It is 4")] * 2
    assert two.problem.turns == (Turn("system", "Add."), Turn("user", "2+2?")) and one.problem.turns == ()
    asked = Asked([two.problem, one.problem], [two.text, one.text], None).arguments()
    assert asked["prompts"] == [[system, user], [user]]
    assert asked["completions"] == [[{"role": "assistant", "content": "It is 4"}]] * 2


def test_a_damaged_file_is_said():
    put(3, {"text": "4"}).write_text("{")
    with pytest.raises(Damaged, match="delete it, then try again"):
        list(read("a-run", [3], None))


def test_a_prompt_without_an_answer_is_not_scored_unless_none_has_one():
    rows = [Stored(1, 0, Problem("p", answer), text, 1.0, False)
            for answer, text in (("4", "4"), ("", "4"), ("4", "5"))]
    assert by_verifier({"verifier": "exact"})(rows) == pytest.approx([1.0, math.nan, 0.0], nan_ok=True)
    with pytest.raises(LabError, match=saying("empty", "exact verifier", "choose another")):
        by_verifier({"verifier": "exact"})(rows[1:2])
