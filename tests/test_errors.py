"""A sentence for the user is one line, and short whatever it repeats."""

import pytest

from labcore.errors import ECHO, LabError, first_line, one_line, quoted


@pytest.mark.parametrize("breaks", ["\n", "\r\n", "\t", "\0", "\x1b[2J", "\u2028", "\udcff"])
def test_a_sentence_is_one_line(breaks):
    said = str(LabError(f"There is no run a{breaks}b: list them."))
    assert len(said.splitlines()) == 1 and said.isprintable()


def test_long_names_are_cut():
    said = str(LabError(f"There is no run {'x' * 5000}: list them."))
    assert "x" * (ECHO - 1) + "…" in said and len(said) < 120
    assert str(LabError(f"There is no file /{'a' * 40}/{'b' * 40}/c.csv.")).endswith(f"/{'b' * 40}/c.csv.")
    assert one_line("a sentence, as it is: with “signs” — and ünïcode\u202f%") == (
        "a sentence, as it is: with “signs” — and ünïcode\u202f%")


@pytest.mark.parametrize("value", ["x " * 5000, 10**400, -10**5000, list(range(10**4)), {"a": {"b": "c" * 500}}, 1e308,
                                   b"x" * 5000, None],
                         ids=str.split("words digits negative list dict float bytes none"))
def test_what_is_quoted_is_short(value):
    assert len(quoted(value)) < 4 * ECHO


def test_what_is_quoted_and_nests_deep():
    value: list = []
    for _ in range(10_000):
        value = [value]
    assert len(quoted(value)) < 40
    while value:  # taken apart from the outside: Python's own way of doing that recurses
        value = value.pop()


@pytest.mark.parametrize(("text", "said"), [
    ("It broke.\nMore of it", "it broke"), ("\n  No such file:\n", "no such file"), ("", "ValueError"),
    (" \n", "ValueError")])
def test_what_another_error_says_first(text, said):
    assert first_line(ValueError(text)) == said
