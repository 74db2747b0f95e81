"""Step labels of a file's rows, and tasks that judge beginnings of answers."""

import pytest

from labcore.errors import LabError
from labcore.tasks.add import Add
from labcore.tasks.sort import Sort
from labcore.tasks.steps import StepTask, labelled_steps, separator_of
from labcore.tasks.task import Problem


def row(**columns):
    return Problem("a", "", 3, columns=columns)


def test_the_steps_of_a_row_and_their_labels():
    assert labelled_steps(row(completions=["x", "y", "z"], labels=[True, 0, 0.25])) == (["x", "y", "z"], [1, 0, 0.25])


@pytest.mark.parametrize("columns, said", [
    ({}, "Line 3 has no steps"), ({"completions": "x", "labels": [True]}, "has no steps"),
    ({"completions": ["x", ""], "labels": [True, True]}, "has no steps"),
    ({"completions": ["x", "y"], "labels": [True]}, "2 steps in 'completions' and 1 labels"),
    ({"completions": ["x"], "labels": True}, "1 steps in 'completions' and no list of labels"),
    ({"completions": ["x"], "labels": [-1]}, "has the label -1"),
    ({"completions": ["x"], "labels": ["true"]}, "has the label 'true'"),
    ({"completions": ["x"], "labels": [float("nan")]}, "has the label nan"),
    ({"completions": ["x"], "labels": [None]}, "has the label None")])
def test_what_is_no_step_or_no_label_is_said_with_its_line(columns, said):
    with pytest.raises(LabError, match=said):
        labelled_steps(row(**columns))


def test_a_line_break_can_be_written_in_a_knob():
    assert separator_of({"step_separator": r"\n\n"}) == "\n\n"
    assert separator_of({"step_separator": r"a\tb"}) == "a\tb" and separator_of({"step_separator": ""}) == ""


def test_a_task_with_one_answer_judges_beginnings_by_it():
    for task, problem in ((Sort({"letters": 3}), Problem("cab=", "abc")),
                          (Add({"digits": 2, "reward_shape": "exact"}), Problem("47+85=", "132"))):
        assert isinstance(task, StepTask)
        assert task.can_become_right(problem, "") and task.can_become_right(problem, problem.answer[:2])
        assert not task.can_become_right(problem, problem.answer[1:]) and not task.can_become_right(
            problem, problem.answer + "x")
