"""The verdict: Student's interval over seeds, sides, equality, and what and, or, not make of a part not known."""

import numpy as np
import pytest

from labcore.analysis.lessons.expression import parse
from labcore.analysis.lessons.verdict import judge
from tests.every import every


def runs(*values: float, name: str = "a") -> dict:
    """A run of one row for each seed."""
    return {name: [{"reward": (np.ones(1), np.array([value]))} for value in values]}


def says(text: str, *values: float) -> str:
    return judge(parse(text, ["a"]), runs(*values)).says


@every("text, values, expected", [
    ('last(a, "reward") > 1', (2, 2.1, 2.2), "holds"), ('last(a, "reward") > 1', (0.2, 0.1, 0), "fails"),
    ('last(a, "reward") > 1', (0, 1.5, 3), "close"), ('last(a, "reward") < 1', (0.2, 0.1, 0), "holds"),
    ('last(a, "reward") < 1', (2, 2.1, 2.2), "fails"), ('last(a, "reward") > 1', (2,), "close"),
    ('last(a, "reward") > 1', (1, 1, 1), "fails"), ('last(a, "reward") >= 1', (1, 1, 1), "holds"),
    ('last(a, "reward") == 0', (0, 0, 0), "holds"), ('last(a, "reward") == 0', (0, 0, 1e-3), "fails"),
    ('last(a, "reward") != 0', (0, 0, 1e-3), "holds"), ('last(a, "reward") == 0', (0, 0), "close"),
    ('last(a, "reward") > 1', (5, 5), "close"), ('0 < last(a, "reward") < 3', (1, 1.1, 1.2), "holds"),
    ('0 < last(a, "reward") < 3', (4, 4.1, 4.2), "fails")])
def test_sides(text, values, expected):
    assert says(text, *values) == expected


@pytest.mark.parametrize("text, expected", [
    ("{yes} and {yes}", "holds"), ("{yes} and {unknown}", "close"), ("{no} and {unknown}", "fails"),
    ("{yes} or {unknown}", "holds"), ("{no} or {unknown}", "close"), ("{no} or {no}", "fails"),
    ("not {unknown}", "close"), ("not {no}", "holds"), ("not {yes}", "fails")])
def test_what_is_not_known_is_carried_through(text, expected):
    parts = {"yes": 'last(a, "reward") > -9', "no": 'last(a, "reward") > 9', "unknown": 'last(a, "reward") > 1'}
    assert says(text.format(**parts), 0, 1.5, 3) == expected


def test_the_difference_is_taken_seed_by_seed():
    """What all runs of a seed share cancels: both sides vary by 10, their difference by 0.1."""
    both = {**runs(1, 6, 11), **runs(0, 5.1, 9.9, name="b")}
    found = judge(parse('last(a, "reward") > last(b, "reward")', ["a", "b"]), both)
    part, = found.parts
    assert found.says == "holds" and part.mean == pytest.approx(1) and part.left == (1, 6, 11)
    assert part.low > 0.7 and found.seeds == 3


def test_what_is_read_off_the_runs_stands_beside_the_sides():
    """Arithmetic is of the check alone; a number over the seeds is one number."""
    both = {**runs(2, 4), **runs(1, 1, name="b")}
    found = judge(parse('log(last(a, "reward") / last(b, "reward")) > log(1.5)', ["a", "b"]), both).parts[0]
    assert found.read == (("last(a, 'reward')", (2, 4)), ("last(b, 'reward')", (1, 1))) and found.logarithms
    found = judge(parse('highest(last(a, "reward") - 1) > 0', ["a"]), runs(2, 4)).parts[0]
    assert found.read == (("highest(last(a, 'reward') - 1)", (3, 3)),) and not found.logarithms
