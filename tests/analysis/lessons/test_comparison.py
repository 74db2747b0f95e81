"""Simple checks are read as comparisons and written back unchanged; all other checks stay text."""

import pytest

from labcore.analysis.lessons import comparison, folders
from labcore.analysis.lessons.comparison import Comparison
from labcore.analysis.lessons.edited import fields
from labcore.errors import LabError


@pytest.mark.parametrize("check, part", [
    ('last(a, "kl") > last(b, "kl")', Comparison("last", "kl", "a", True, "b")),
    ('last(a, "kl", 1) < last(b, "kl", 1) - 1', Comparison("last one", "kl", "a", False, "b", 1.0)),
    ('max(a, "kl") > max(b, "kl") - 0.25', Comparison("max", "kl", "a", True, "b", -0.25)),
    ('mean(a, "kl") < 0.5', Comparison("mean", "kl", "a", False, "", 0.5))])
def test_a_simple_comparison_is_read_and_written_as_it_stands(check, part):
    assert comparison.read(check) == [part] and str(part) == check


@pytest.mark.parametrize("check", ["2 * last(a, 'kl') > 1", "last(a, 'kl') > last(b, 'reward')", "not 1 > 2", "(", ""])
def test_any_other_check_stays_a_text(check):
    assert comparison.read(check) == [check]


def test_the_checks_of_all_lessons_keep_their_meaning():
    for path in folders.HERE.glob("*.md"):
        check = fields(path.read_text("utf-8"))[0]["check"]
        said = comparison.written(comparison.read(check))
        assert "".join(said.split()).replace("(", "").replace(")", "") == "".join(
            check.replace("'", '"').split()).replace("(", "").replace(")", ""), path.name


def test_a_check_that_grows_too_long_is_refused():
    with pytest.raises(LabError, match="remove a comparison"):
        comparison.written([Comparison("last", "reward", "a", True, "b")] * 30)
