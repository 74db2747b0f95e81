"""Beginnings of countdown's expressions: what can be reached is what some right expression begins with."""

from functools import cache
from itertools import combinations

import pytest

from labcore.tasks.countdown import Countdown, solves
from labcore.tasks.countdown_steps import can_reach
from labcore.tasks.task import Problem
from tests.every import now


@cache
def expressions(numbers):
    """Every expression of the numbers in any order, each part with and without brackets."""
    if len(numbers) == 1:
        return frozenset((str(numbers[0]), f"({numbers[0]})"))
    found = set()
    for size in range(1, len(numbers)):
        for some in combinations(range(len(numbers)), size):
            left = tuple(numbers[place] for place in some)
            right = tuple(numbers[place] for place in range(len(numbers)) if place not in some)
            for a in expressions(left):
                for b in expressions(right):
                    found |= {text for sign in "+-*" for text in (f"{a}{sign}{b}", f"({a}{sign}{b})")}
    return frozenset(found)


@pytest.mark.parametrize("numbers, target", now(
    [((2, 3, 7), 13), ((1, 1, 4), 6), ((2, 7), 14), ((2, 3, 7), 35)], ((1, 1, 4), 6), ((2, 7), 14)))
def test_a_beginning_can_become_right_exactly_if_a_right_expression_begins_so(numbers, target):
    every = expressions(numbers)
    right = {text[:end] for text in every if solves(text, [*numbers], target) for end in range(len(text) + 1)}
    begun = {text[:end] + more for text in every for end in range(len(text) + 1) for more in ("", "+", ")", "9")}
    for beginning in sorted(begun):
        possible = can_reach(beginning, [*numbers], target)
        assert possible or beginning not in right, beginning
        if "((" not in beginning and "(" not in beginning[-1:]:  # others go on with brackets that the list has not
            assert possible == (beginning in right), beginning


@pytest.mark.parametrize("beginning, possible", [
    ("", True), ("2*3+7", True), ("2*3+7)", False), ("7+", True), ("7-", False), ("2+3", False), ("2*3*", False),
    ("2*2", False), ("((((2*3", True), ("2**", False), ("x", False), ("2*3+7+", False), ("(" * 17, False),
    ("(" * 16, True)])
def test_beginnings_by_hand(beginning, possible):
    assert can_reach(beginning, [2, 7, 3], 13) == possible


def test_an_unfinished_number_may_become_one_of_those_left():
    assert can_reach("1", [13, 2], 15) and can_reach("2+1", [13, 2], 15) and not can_reach("2+12", [13, 2], 15)


def test_the_task_judges_beginnings():
    task = Countdown({"numbers": 3})
    problem = Problem("2,7,3:13=", "2*3+7")
    assert task.can_become_right(problem, "2*") and not task.can_become_right(problem, "7*")
