"""Writing a lesson on the page: what is wrong with it is said, a draft is never lost, and a saved file is a lesson."""

import pytest

from app.lessons.editor import slug
from labcore.analysis.lessons import folders
from labcore.analysis.lessons.folders import NEW, TEMPLATE, VARIABLE
from labcore.errors import LabError
from labcore.runs.files.paths import home
from tests.analysis.lessons.lesson_text import TEXT
from tests.app.seeding import link, ran
from tests.app.test_lessons_page import button, markdown


@pytest.fixture
def writing(page, monkeypatch):
    """The editor of a new lesson, with no folder of lessons set."""
    monkeypatch.delenv(VARIABLE, raising=False)
    return page("lessons", write=NEW)


def box(test, label):
    """The widget with this label."""
    return next(each for kind in ("text_area", "text_input", "selectbox", "number_input", "multiselect")
                for each in test.get(kind) if each.label == label)


def write(test, text):
    box(test, "The lesson").set_value(text)
    return ran(test)


def test_it_begins_with_a_lesson_that_works_and_saves_it_as_a_file(writing):
    assert box(writing, "The lesson").value == TEMPLATE.read_text("utf-8") and writing.success
    test = write(writing, TEXT)
    assert "Which is better?" in markdown(test) and "matter of the maze" in markdown(test)
    button(test, "lesson:save").click()
    test = ran(test)
    assert link(test) == {"lesson": "both_learn"} and folders.find("both_learn").own
    assert (home() / "lessons" / "both_learn.md").read_text("utf-8") == TEXT
    assert folders.draft(NEW) == TEMPLATE.read_text("utf-8")  # the next one begins anew


def test_the_name_follows_the_title_until_one_is_typed(writing):
    test = write(writing, TEXT)
    assert box(test, "Name").value == "both_learn"
    test = write(test, TEXT.replace("Both learn", "Both do"))
    assert box(test, "Name").value == "both_do"
    box(test, "Name").set_value("mine")
    for text in (TEXT, "no lesson"):
        assert box(write(ran(test), text), "Name").value == "mine"


def test_a_fault_is_one_sentence_with_its_line_and_the_text_is_kept_as_a_draft(writing, page):
    test = write(writing, TEXT.replace("right = 2", "right = 5"))
    assert "line 12" in test.error[0].value and button(test, "lesson:save").disabled
    again = page("lessons", write=NEW)  # another tab, or after a restart
    assert "right = 5" in box(again, "The lesson").value
    box(again, "Begin with a copy of").select("cliff")
    test = ran(again)
    assert box(test, "The lesson").value == folders.text_of("cliff")
    button(test, "lesson:before").click()  # the draft that it replaced
    assert "right = 5" in box(ran(test), "The lesson").value


def test_an_own_lesson_is_edited_and_its_earlier_version_kept(writing, page):
    path = folders.save("mine", TEXT)
    test = write(page("lessons", write="mine"), TEXT.replace("Both learn", "Both do"))
    button(test, "lesson:save").click()
    assert link(ran(test)) == {"lesson": "mine"} and folders.find("mine").title == "Both do"
    assert path.with_name("mine.md.before").read_text("utf-8") == TEXT
    test = write(page("lessons", write="mine"), "no lesson")
    button(test, "lesson:discard").click()
    assert "Both do" in box(ran(test), "The lesson").value
    assert "renamed or deleted" in page("lessons", write="nobody").error[0].value


@pytest.mark.parametrize("letter, name", [("γ", "gamma"), ("β", "beta"), ("ε", "epsilon"), ("λ", "lambda"),
                                          ("Ψ", "psi"), ("\N{MICRO SIGN}", "mu")])
def test_a_greek_letter_is_spelt_in_the_proposed_name(letter, name):
    assert slug(f"A small {letter}, seen") == f"a_small_{name}_seen" and slug(f"3{letter}") == name


def test_the_page_of_an_own_lesson_edits_and_downloads_it(writing, page):
    folders.save("mine", TEXT)
    test = page("lessons", lesson="mine")
    assert [each.label for each in test.get("download_button")] == ["Download"]
    button(test, "lesson:edit").click()
    assert link(ran(test)) == {"write": "mine"}
    assert button(page("lessons", lesson="cliff"), "lesson:edit") is None


@pytest.mark.parametrize("name", ["", "../x", "a/b", "A", "1a", "new", "cliff", "a" * 49, "é", "lesson\n", "con.md",
                                  "readme"])
def test_no_other_name_becomes_a_file(writing, name):
    with pytest.raises(LabError, match=r"called|already"):
        folders.save(name, TEXT)
    assert not (home() / "lessons").exists()


@pytest.mark.parametrize("content", [b"\xff\xfe", b"x" * 300_000], ids=["no UTF-8", "too long"])
def test_a_file_that_is_no_text_is_refused(content):
    with pytest.raises(LabError, match=r"UTF-8|characters"):
        folders.decoded(content)


def test_nothing_is_written_over_or_in_a_lab_for_reading(writing, monkeypatch):
    folders.save("mine", TEXT)
    with pytest.raises(LabError, match="already"):
        folders.save("mine", TEXT)
    (beside := home() / "lessons" / "beside.md").write_text("a note", "utf-8")
    monkeypatch.setattr(folders, "MOST", 0)  # a file that the list leaves out
    with pytest.raises(LabError, match="already"):
        folders.save("beside", TEXT)
    assert beside.read_text("utf-8") == "a note"
    with pytest.raises(LabError):  # only what is a lesson becomes a file
        folders.save("other", "no lesson")
    monkeypatch.setenv("RL_LAB_READ_ONLY", "1")
    for change in (lambda: folders.save("third", TEXT), lambda: folders.keep_draft(NEW, TEXT)):
        with pytest.raises(LabError, match="shared for reading"):
            change()


@pytest.mark.parametrize("title, name", [("2 β: what is it?", "beta_what_is_it"), ("Über α", "uber_alpha"),
                                         ("???", "")])
def test_a_name_is_made_of_the_title(title, name):
    assert slug(title) == name


def test_a_change_in_the_form_is_a_change_of_the_file_and_of_nothing_else(writing):
    before = TEMPLATE.read_text("utf-8")
    box(writing, "Title").set_value("What is γ?")
    box(writing, "Answers, one per line").set_value("Less\n\nMore\nThe same")
    test = ran(writing)
    box(test, "Correct answer").select(2)
    box(test, "by over").set_value(2.0)
    text = box(ran(test), "The lesson").value
    assert text == before.replace("How far does a small γ see?", "What is γ?").replace(
        '["About as much as with γ = 0.97", "Far less"]', '["Less", "More", "The same"]').replace(
        "right = 2", "right = 3").replace(", 1) - 1'", ", 1) - 2'").rstrip() + "\n"


def test_a_run_of_the_form_has_the_knobs_of_its_algorithm_and_a_new_one_is_a_copy(writing):
    button(writing, "form:add").click()
    test = ran(writing)
    assert "the runs long and run_1 are the same" in test.error[0].value
    button(test, "form:remove").click()
    test = ran(test)
    assert test.success and box(test, "Changed knobs").value == ["gamma"]
    box(test, "Discount γ").set_value(0.75)
    assert "knobs = { gamma = 0.75 }" in box(ran(test), "The lesson").value
    box(test, "World").select("llm")
    text = box(ran(test), "The lesson").value
    assert 'kind = "llm"' in text and "is not valid" not in text


def test_a_text_that_is_no_lesson_leaves_the_way_to_correct_it(writing):
    test = write(writing, "no lesson")
    assert "The form cannot read the file" in test.info[0].value and box(test, "The lesson").value == "no lesson"
    assert write(test, TEXT).success
