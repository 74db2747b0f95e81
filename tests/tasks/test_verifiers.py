"""Each verifier against verdicts given by hand."""

import time
from decimal import Decimal

import pytest

from labcore.catalog.llm.tasks import VERIFIERS as NAMES
from labcore.errors import LabError
from labcore.tasks.verifiers import (
    VERIFIERS,
    answer_fault,
    containing,
    exact,
    matching,
    number,
    numeric,
    verifier,
    within,
)


def test_the_table_has_the_verifiers_of_the_catalog():
    assert tuple(VERIFIERS) == NAMES


@pytest.mark.parametrize(("completion", "answer", "right"), [
    ("132", "132", True), (" 132\n", "132", True), ("1 32", "132", False), ("", "132", False), ("ABC", "abc", False),
])
def test_exact(completion, answer, right):
    assert exact(completion, answer) is right


@pytest.mark.parametrize(("text", "value"), [
    ("#### 18", "18"),
    ("####18", "18"),
    ("9 * 2 = $18\n#### 1,018", "1018"),
    ("#### $1,234,567.50", "1234567.5"),
    ("#### -5", "-5"),
    ("#### −5", "-5"),
    ("#### $-5 or so", "-5"),
    ("-$5", "-5"),
    ("+7", "7"),
    ("#### 18\n\nQuestion: what of 7? #### 99", "18"),
    ("####\n18", "18"),
    ("#### none\nso 4", "4"),
    ("from 3 to 4.", "4"),
    ("a total of 1,000.", "1000"),
    ("20-5", "5"),
    ("(3)-4", "4"),
    ("3 - 4", "4"),
    ("covid-19", "19"),
    ("it is -4", "-4"),
    ("50%", "50"),
    (".5", "0.5"),
    ("5.0", "5"),
    ("1, 2, 3", "3"),
    ("1,2,3", "3"),
    ("1e3", "1000"),
    ("1E-05", "0.00001"),
    ("3 eggs", "3"),
    ("007", "7"),
    ("€2.50 each", "2.5"),
    ("9" * 5000, "9" * 5000),
])
def test_number(text, value):
    assert number(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "none", "####", "#### none", "$", "-", "٣"])
def test_no_number(text):
    assert number(text) is None


@pytest.mark.parametrize(("completion", "answer", "right"), [
    ("The answer is $18.00", "#### 18", True), ("so 17", "18", False), ("I do not know", "18", False),
    ("I do not know", "nor do I", False), ("-18", "18", False), ("1800%", "1,800", True),
])
def test_numeric(completion, answer, right):
    assert numeric(completion, answer) is right


def test_regex_searches_anywhere():
    matches = matching(r"^[a-z]+\.$")
    assert matches("abc.", "") and not matches("abc", "") and not matches("Abc.", "")


@pytest.mark.parametrize(("pattern", "words"), [("", "needs a pattern"), ("(a", "is not a regular expression")])
def test_bad_pattern(pattern, words):
    with pytest.raises(LabError, match=words):
        matching(pattern)


def test_a_pattern_that_never_ends_is_stopped(monkeypatch):
    monkeypatch.setattr("labcore.tasks.verifiers.PATTERN_SECONDS", 0.05)
    started = time.monotonic()
    with pytest.raises(LabError, match="repeats within repeats"):
        matching(r"(?:a|aa)+$")("a" * 60 + "b", "")
    assert time.monotonic() - started < 5


def test_contains_the_pattern_or_else_the_answer():
    assert containing("cat")("a cat", "dog") and not containing("cat")("a dog", "dog")
    assert containing("")("a dog", " dog ") and not containing("")("a cat", "dog")


def test_length_counts_both_ends():
    assert [within(2, 4)("é" * length, "") for length in range(1, 6)] == [False, True, True, True, False]
    assert within(0, 1)("", "")


def test_the_knobs_choose():
    knobs = {"verifier": "length", "pattern": "b", "length_low": 1, "length_high": 2}
    assert verifier(knobs)("ab", "") and not verifier(knobs)("abc", "")
    for name, completion, answer in (("contains", "abc", ""), ("regex", "abc", ""), ("exact", "a", "a"),
                                     ("numeric", "1.0", "1")):
        assert verifier({**knobs, "verifier": name})(completion, answer), name


def test_answers_that_a_verifier_cannot_use():
    assert "no number" in answer_fault({"verifier": "numeric", "pattern": ""}, "yes")
    assert "is empty" in answer_fault({"verifier": "exact", "pattern": ""}, " ")
    assert "is empty" in answer_fault({"verifier": "contains", "pattern": ""}, "")
    for name in ("regex", "length", "contains"):
        assert answer_fault({"verifier": name, "pattern": "x"}, "") is None
