"""What the user's file holds, counted by hand."""

from __future__ import annotations

import json

import pytest

from labcore.catalog.kinds import task
from labcore.spec.run_spec import make
from labcore.tasks.look import look
from labcore.tasks.task import make_task


def looked(tmp_path, rows, task_key="prompts", **knobs):
    path = tmp_path / "data.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    spec = make(algorithm_key="sft", task_key=task_key, data=str(path), knobs=knobs)
    return look(make_task(task(task_key), spec.knobs, path))


def asked(*pairs):
    return [{"prompt": prompt, "answer": answer} for prompt, answer in pairs]


def test_lengths_repeats_and_where_the_longest_prompt_stands(tmp_path):
    found = looked(tmp_path, asked(("2+3=", "5"), ("12+30=", "42"), ("2+3=", "6"), ("2+3=", "5")))
    assert (found.lines, found.longest, found.line) == (4, 6, 2)
    assert found.answers == (1, 1, 2) and found.lengths == (1, 2, 1, 1)
    assert (found.repeated, found.disagreeing, found.empty) == (2, 1, 0)
    assert (found.numbers, found.marked) == (4, 0)


@pytest.mark.parametrize("answer, marked, number", [
    ("9 * 2 = 18\n#### 18", 1, 0), ("#### $1,000", 1, 0), ("####", 0, 0), ("#### none", 0, 0), ("18", 0, 1),
    ("-1,234.5", 0, 1), ("$18", 0, 1), ("50%", 0, 1), ("18 eggs", 0, 0), ("1 2", 0, 0), ("a", 0, 0)])
def test_answers_with_a_number(tmp_path, answer, marked, number):
    found = looked(tmp_path, asked(("p", answer)))
    assert (found.marked, found.numbers) == (marked, number)


def test_lines_without_an_answer_are_counted_where_the_verifier_can_do_without(tmp_path):
    assert looked(tmp_path, asked(("a", ""), ("b", "  "), ("c", "x")), verifier="length").empty == 2


def test_of_pairs_the_chosen_side_is_the_answer_and_a_text_has_no_lines(tmp_path):
    rows = [{"prompt": "p", "chosen": "yes", "rejected": "no, never"}]
    assert looked(tmp_path, rows, "preferences").answers == (3, 3, 3)
    (tmp_path / "t.txt").write_text("x" * 500)
    spec = make(algorithm_key="sft", task_key="text", data=str(tmp_path / "t.txt"))
    assert look(make_task(task("text"), spec.knobs, spec.data)) is None
