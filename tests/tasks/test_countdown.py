"""Countdown: every problem can be solved, and the verifier takes nothing for an expression that is none."""

import itertools

import numpy as np
import pytest

from labcore.tasks.countdown import TARGETS, Countdown, solutions, solves, value
from labcore.tasks.task import Problem
from tests.every import every


@pytest.mark.parametrize("numbers", [2, 3, 4, 5])
def test_every_problem_has_a_solution_and_its_answer_is_one(numbers):
    task = Countdown({"numbers": numbers})
    for problem in task.problems(40, np.random.default_rng(numbers)):
        given, target = problem.prompt.rstrip("=").split(":")
        assert len(given.split(",")) == numbers and int(target) in TARGETS
        assert task.score(problem, problem.answer).exact and set(problem.answer) <= set(task.characters)


@pytest.mark.parametrize("text, right", [("2*3+7", True), ("02*003+7", False), ("2*3+07", False), ("2*03+7", False)])
def test_a_number_has_no_leading_zeros(text, right):
    assert solves(text, [2, 7, 3], 13) is right


def brute(numbers):
    """Every value of every order, operator and bracket of three numbers, by Python's own arithmetic."""
    found = set()
    for a, b, c in itertools.permutations(numbers):
        for first, second in itertools.product("+-*", repeat=2):
            found |= {eval(f"({a}{first}{b}){second}{c}"), eval(f"{a}{first}({b}{second}{c})")}
    return {each for each in found if each in TARGETS}


@pytest.mark.parametrize("numbers", [(1, 2, 3), (4, 4, 9), (7, 8, 9), (1, 1, 1), (5, 6, 9)])
def test_the_solver_finds_all_that_can_be_reached(numbers):
    assert set(solutions(numbers)) == brute(numbers)
    assert all(solves(text, list(numbers), target) for target, text in solutions(numbers).items())


@pytest.mark.parametrize("text", ["2*3+7", "7+2*3", "(2*3)+7", "((7))+3*2", "7+3*2"])
def test_any_solution_counts(text):
    assert Countdown({"numbers": 3}).score(Problem("2,7,3:13=", "2*3+7"), text).reward == 1


@every("text", ["", "13", "6+7", "2*3+7 ", "2*3+7=13", "2*3+7)", "(2*3+7", "2**3+7", "-7+20", "2*3+",
                "2*37", "7+3+2", "2*3+7+2-2", "٢*3+7", "__import__('os')", "(" * 3000,
                "(" * 40 + "2*3+7" + ")" * 40, "9**9**9**9", "1e9"])
def test_all_else_is_wrong(text):
    assert Countdown({"numbers": 3}).score(Problem("2,7,3:13=", "2*3+7"), text).reward == 0


@pytest.mark.parametrize("text", ["1+2*3", "(1+2)*3", "1-2-3", "1-(2-3)", "2*(3-(4-5))*6", "((8))"])
def test_the_reader_agrees_with_python(text):
    assert value(list(text)) == eval(text)
