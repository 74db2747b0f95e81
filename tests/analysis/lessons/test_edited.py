"""A field of a lesson's text is changed, and nothing else."""

import pytest

from labcore.analysis.lessons import edited
from labcore.analysis.lessons.lesson import parse
from labcore.errors import LabError
from tests.analysis.lessons.lesson_text import TEXT


def test_only_the_field_is_another_one_and_comments_stay():
    text = TEXT.replace("minutes = ", "# a comment\nminutes = ")
    found = edited.changed(text, ("title",), 'Say "no"')
    assert "# a comment" in found and edited.fields(found)[0] == edited.fields(text)[0] | {"title": 'Say "no"'}
    assert edited.changed(found, ("title",), edited.fields(text)[0]["title"]).split() == text.split()


@pytest.mark.parametrize("value", ["plain", "é 'single'", '"double"', "both ' and \"", "two\nlines", "\t", 3, 0.5, True,
                                   [1, 2], {"a": 1}])
def test_every_value_comes_back(value):
    assert edited.fields(edited.changed(TEXT, ("topic",), value))[0]["topic"] == value


def test_a_field_is_added_and_removed():
    found = edited.changed(TEXT, ("runs", 0, "knobs", "epsilon"), 0.25)
    assert edited.fields(found)[0]["runs"][0]["knobs"]["epsilon"] == 0.25
    assert edited.fields(edited.changed(found, ("runs", 1), None))[0]["runs"] == edited.fields(found)[0]["runs"][:1]
    with pytest.raises(LabError, match="there is no field"):
        edited.changed(TEXT, ("runs", 9, "name"), "x")


def test_one_more_run_is_a_copy_with_a_name_of_its_own():
    two = edited.with_run(edited.with_run(TEXT))
    names = [run["name"] for run in edited.fields(two)[0]["runs"]]
    assert len(set(names)) == len(names) == len(edited.fields(TEXT)[0]["runs"]) + 2
    assert parse("mine", edited.with_explanation(TEXT, "Because.")).explanation == "Because."


@pytest.mark.parametrize("text", ["no lesson", "+++\na = \n+++\n", "+++\n" + "[" * 500 + "\n+++\n"])
def test_a_text_that_is_no_lesson_is_refused(text):
    with pytest.raises(LabError):
        edited.changed(text, ("title",), "x")
