"""Each verifier against verdicts given by hand, and that no completion keeps the one of maths for ever."""

import threading
import time

import pytest

from labcore.catalog.llm.tasks import VERIFIERS as NAMES
from labcore.errors import LabError
from labcore.tasks import verifiers
from labcore.tasks.numbers import number, plain
from labcore.tasks.verifiers import (
    VERIFIERS,
    answer_fault,
    choice,
    containing,
    exact,
    formatted,
    in_format,
    is_json,
    letter,
    matching,
    maths,
    verifier,
    within,
)
from tests.every import every


def test_the_table_has_the_verifiers_of_the_catalog():
    assert tuple(VERIFIERS) == NAMES


@pytest.mark.parametrize(("completion", "answer", "right"), [
    ("132", "132", True), (" 132\n", "132", True), ("1 32", "132", False), ("", "132", False), ("ABC", "abc", False),
])
def test_exact(completion, answer, right):
    assert exact(completion, answer) is right


@every(("completion", "answer", "right"), [
    ("B", "B", True), ("(B)", "B", True), ("b", "B", True), ("B.", "(B)", True), ("**B**", "B", True),
    ("Answer: B", "B", True), ("the answer is B.", "B", True),
    ("The correct answer is (B) because A is odd.", "B", True),
    (r"\boxed{B}", "B", True), (r"\boxed{\text{B}}", "B", True), (r"\boxed{(B)} and not A", "B", True),
    ("B) Paris", "B", True), ("B. Paris, not A", "B", True), ("A is odd.\nAnswer: **B**", "B", True),
    ("The answer is A because it is even.", "A", True), ("**Answer:** B", "B", True),
    ("A", "B", False), ("", "B", False), ("A or B", "B", False), ("A, B", "B", False),
    ("The answer is A or B.", "A", False),
    ("The answer is A. No, the answer is B.", "B", False), ("A) 3\nB) 4", "A", False), ("Answer: Both", "B", False),
    ("Answer: A good idea", "A", False), ("Answer: I think so", "I", False), ("The answer is not B.", "B", False),
    ("Because", "B", False), (r"\boxed{A, B}", "A", False), ("K", "K", False), ("The answer is B's", "B", False),
])
def test_choice(completion, answer, right):
    assert choice(completion, answer) is right


@every(("completion", "answer", "right"), [
    ('{"a": 1}', '{"a": 1.0}', True), (' {"b": 2, "a": [1]}\n', '{"a":[1],"b":2}', True), ("[]", "", True),
    ('Here:\n```json\n{"a": 1}\n```\nDone.', '{"a": 1}', True), ("```\n[1]\n```", "[1]", True), ("3", "any list", True),
    ('{"a": 1', "", False), ("", "", False), ("{'a': 1}", "", False), ("[NaN]", "", False), ("[1]", "[true]", False),
    ("[1, 2]", "[2, 1]", False), ('"1"', "1", False), ('{"a": 1, "b": 2}', '{"a": 1}', False), ("[" * 5000, "", False),
    ("```json\n1\n```\n```json\n2\n```", "1", False), ("Sure: [1]", "[1]", False), ("null", "null", True),
])
def test_json(completion, answer, right):
    assert is_json(completion, answer) is right


@pytest.mark.parametrize(("completion", "right"), [
    ("<think>3 + 4</think><answer>7</answer>", True), (" <think>a\nb</think>\n\n<answer>7</answer>\n", True),
    ("<think></think><answer></answer>", True), ("<think>3</think>7", False),
    ("so <think>3</think><answer>7</answer>", False),
    ("<answer>7</answer><think>3</think>", False), ("<think>3</think><answer>7", False), ("", False),
    ("<think></answer>", False), ("<think>3</think> so <answer>7</answer>", False),
])
def test_format(completion, right):
    for template in ("<think>…</think><answer>…</answer>", "<think>...</think>\n<answer>...</answer>"):
        assert formatted(template)(completion, "") is right


def test_a_format_takes_linear_time_and_needs_a_template():
    started = time.monotonic()
    assert not formatted("a…a…a…a…a…b")("a" * 1_000_000, "") and time.monotonic() - started < 2
    assert formatted("yes")("yes", "") and not formatted("yes")("yes!", "") and not formatted("aa…aa")("aaa", "")
    with pytest.raises(LabError, match="needs a template"):
        formatted(" ")


@pytest.mark.parametrize("text", ["1,", " ", "*", "answer", "answer: ", "answer is", "\n", "A", "```json\n", "####",
                                  "-", r"\boxed{", r"\boxed{{", "1 000 ", "{a}", "> "])
def test_a_long_completion_is_judged_in_time(text):
    for long in (text * 4000, "answer:" + text * 4000, "\\boxed{" + text * 4000):
        started = time.monotonic()
        number(long), plain(long), letter(long), is_json(long, "1"), in_format(long, "<a>…</a>")
        assert time.monotonic() - started < 2


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
                                     ("numeric", "1.0", "1"), ("choice", "(B)", "B"), ("math", "0.75", "3/4"),
                                     ("json", "[1 ]", "[1]"), ("format", "b", "")):
        assert verifier({**knobs, "verifier": name})(completion, answer), name


def test_answers_that_a_verifier_cannot_use():
    for answer in ("yes", "3/4", "1,5", "2:45", "18 eggs", ""):
        fault = answer_fault({"verifier": "numeric", "pattern": ""}, answer)
        assert "not a whole plain number" in fault and "verifier=math" in fault
    assert answer_fault({"verifier": "numeric", "pattern": ""}, "9 * 2 = 18\n#### 1,018") is None
    assert "not a letter" in answer_fault({"verifier": "choice", "pattern": ""}, "K")
    assert "is empty" in answer_fault({"verifier": "math", "pattern": ""}, " ")
    assert "is empty" in answer_fault({"verifier": "exact", "pattern": ""}, " ")
    assert "is empty" in answer_fault({"verifier": "contains", "pattern": ""}, "")
    for name in ("regex", "length", "contains", "json", "format"):
        assert answer_fault({"verifier": name, "pattern": "x"}, "") is None


@every(("completion", "answer", "right"), [
    (r"\frac{3}{4}", "3/4", True), ("0.75", "3/4", True), ("3/4", r"\frac34", True),
    ("6/8", r"\boxed{\frac{3}{4}}", True),
    (r"The answer is $\frac{3}{4}$.", "0.75", True), (r"\boxed{42}. I checked 3 times", "42", True),
    ("$x^2+1$", "1+x^2", True), (r"\boxed{x=3}", "3", True), ("(1,2)", "$(1,2)$", True), ("50%", "0.5", True),
    ("#### 18", "9 * 2 = 18\n#### 18", True), ("yes ", "yes", True), (r"\boxed{\text{Evelyn}}", r"\text{Evelyn}", True),
    ("1,234", "1234", True), (r"2\,000", "2000", True), ("1{,}000", "1000", True),
    ("so it is 1/4", "3/4", False), ("4", "3/4", False), ("2", r"\sqrt{2}", False), (r"\sqrt{2}", "2", False),
    ("(2,1)", "$(1,2)$", False), ("2:45", "3:45", False), ("", "", False), ("", "3", False), ("no", "yes", False),
])
def test_maths(completion, answer, right):
    assert maths(completion, answer) is right


def test_a_completion_that_would_compute_for_ever_is_wrong_and_the_next_is_judged(monkeypatch):
    monkeypatch.setattr(verifiers, "SECONDS", 0.5)
    assert maths("3/4", "0.75")
    started = time.monotonic()
    assert not maths("9^{9^{9^9}}", "3") and time.monotonic() - started < 5
    assert verifiers._started is None, "it is gone"
    monkeypatch.setattr(verifiers, "SECONDS", 20.0)
    assert maths("3/4", "0.75")


def test_threads_ask_one_after_another():
    said = {}
    threads = [threading.Thread(target=lambda n=n: said.update({n: maths(f"{n}/4", f"{n / 4}")})) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == dict.fromkeys(range(1, 9), True)


def test_without_the_library_it_says_what_to_do(monkeypatch, tmp_path):
    (tmp_path / "broken.py").write_text("raise ImportError('No module named math_verify')")
    monkeypatch.setattr(verifiers.math_equal, "__file__", str(tmp_path / "broken.py"))
    monkeypatch.setattr(verifiers, "_started", None)
    with pytest.raises(LabError, match=r"did not start .*No module named math_verify.*requirements.txt"):
        maths("1", "2")
