"""The language of a check: what it computes, and that nothing else gets through."""

import numpy as np
import pytest

from labcore.analysis.lessons import expression
from labcore.analysis.lessons.expression import number, parse
from labcore.errors import LabError
from tests.every import every

STEPS = np.arange(1.0, 11.0)
# Two seeds each: the reward of a rises by 1 a step (from 1, from 2), that of b is 5.
RUNS = {"a": [{"reward": (STEPS, STEPS)}, {"reward": (STEPS, STEPS + 1)}],
        "b": [{"reward": (STEPS, np.full(10, 5.0))}] * 2}


def value(text: str) -> list[float]:
    """A number of the language for each seed."""
    return number(parse(f"{text} > 0", ["a", "b"]).tree.left, RUNS, 2).tolist()


@every("text, expected", [
    ('first(a, "reward")', [3, 4]), ('first(a, "reward", 1)', [1, 2]), ('last(a, "reward")', [8, 9]),
    ('last(a, "reward", 2)', [9.5, 10.5]), ('last(a, "reward", 99)', [5.5, 6.5]), ('mean(a, "reward")', [5.5, 6.5]),
    ('max(a, "reward")', [10, 11]), ('min(a, "reward")', [1, 2]), ('slope(a, "reward")', [1, 1]),
    ('slope(b, "reward")', [0, 0]), ('at(a, "reward", 4)', [4, 5]), ('at(a, "reward", 5000)', [10, 11]),
    ('mean(a, "reward") - mean(b, "reward")', [0.5, 1.5]), ('-2 * mean(b, "reward") / 4 + 1', [-1.5, -1.5]),
    ('abs(mean(b, "reward") - 6)', [1, 1]), ('highest(mean(a, "reward"))', [6.5, 6.5]),
    ('lowest(mean(a, "reward"))', [5.5, 5.5]), ('average(mean(a, "reward"))', [6, 6]), ("+1e3", [1000, 1000]),
    ('log(mean(b, "reward"))', [1.6094379] * 2)])
def test_what_it_computes_for_each_seed(text, expected):
    assert value(text) == pytest.approx(expected)


def test_a_check_knows_what_it_reads_and_may_stand_on_several_lines():
    check = parse('last(a, "reward") > 1\n  and not 0 < last(b, "kl") <= 2', ["a", "b"])
    assert check.reads == (("a", "reward"), ("b", "kl")) and "\n" not in check.text
    assert check.comparisons == ("last(a, 'reward') > 1", "0 < last(b, 'kl')", "last(b, 'kl') ≤ 2")


@every("text, said", [
    ("9 ** 9 ** 9 > 1", "not a number"), ("2 << 1000 > 1", "not a number"), ("1 @ 2 > 1", "not a number"),
    ("7 // 2 > 1", "not a number"), ("10000000000000 > 1", "up to 1e+12"), ("1e400 > 1", "up to 1e+12"),
    ("9" * 500 + " > 1", "not a number that"), ("1j > 0", "not a number"), ("True > 0", "not a number"),
    ("'x' > 1", "not a number"), ("a > 1", "not a number"), ("a.reward > 1", "not a number"),
    ("().__class__ > 1", "not a number"), ("[1][0] > 1", "not a number"), ("f'{a}' > 1", "not a number"),
    ("__import__('os') > 1", "no function"), ("open('x') > 1", "no function"), ("a.last() > 1", "no function"),
    ("(lambda: 1)() > 1", "no function"), ("eval('1') > 1", "no function"), ("[x for x in a] > 1", "not a number"),
    ("(x := 1) > 1", "not a number"), ("1 if 1 > 0 else 2", "neither true"), ("1 + 1", "neither true"),
    ("last(a, 'reward')", "neither true"), ("1 in 2", "cannot say in"), ("1 is 1", "cannot say is"),
    ("last(c, 'reward') > 1", "c is not a run of this lesson: use a or b"),
    ("last('a', 'reward') > 1", "not a run"), ("last(a, reward) > 1", "in quotes"),
    ("last(a, 'rewards') > 1", "did you mean 'reward'"), ("last(a, 'zzzz') > 1", "page Help"),
    ("last(a) > 1", "has 1 arguments"), ("at(a, 'reward') > 1", "write at(run"), ("mean(a, 'reward', 3) > 1", "write"),
    ("last(a, 'reward', 0) > 1", "whole number from 1"), ("last(a, 'reward', 1.5) > 1", "whole number from 1"),
    ("last(a, 'reward', n=3) > 1", "no named arguments"), ("last(*a) > 1", "arguments"),
    ("abs(1, 2) > 1", "one number"),
    ("log(a) > 1", "not a number"), ("lst(a, 'reward') > 1", "did you mean 'last'"), ("", "cannot be read"),
    ("import os", "cannot be read"),
    ("1 >", "cannot be read"), ("1 > 0\x00", "cannot be read"),
    ("(" * 280 + "1" + ")" * 280 + " > 0", "cannot be read"),
    ("1" + " + 1" * 140 + " > 0", "operations deep"), ("-" * 400 + "1 > 0", "operations deep"),
    ("not " * 100 + "1 > 0", "operations deep"), ("1 > 0" + " or 1 > 0" * 100, "use at most 600")])
def test_nothing_else_gets_through_and_it_says_why(text, said):
    with pytest.raises(LabError, match=said.replace("(", r"\(").replace("+", r"\+")) as found:
        parse(text, ["a", "b"])
    assert "\n" not in str(found.value) and len(str(found.value)) < 300


def test_what_is_not_finite_or_not_logged_is_said():
    for text, said in (('1 / (mean(b, "reward") - 5)', "is not finite"), ('last(a, "kl")', "logged no"),
                       ("log(0)", "is not finite")):
        with pytest.raises(LabError, match=said):
            value(text)


def test_every_function_is_told_in_the_documentation():
    from tests.imports import ROOT

    text = (ROOT / "docs" / "lessons.md").read_text("utf-8")
    assert all(f"`{name}(" in text for name in expression.FUNCTIONS)
