"""Help: questions with their answers, the links that lead to them, and the reference."""

import ast
import re
from html import escape as html_text
from pathlib import Path

import pytest

from app import help, question_link, shortcuts
from app.page_list import PAGES
from app.training import controls, doctor_line
from app.training.bar import ACTIONS
from labcore.analysis.doctor.finding import Finding
from labcore.analysis.lessons.folders import lessons
from labcore.catalog.metrics import METRICS
from labcore.catalog.questions import QUESTIONS
from labcore.runs.files.paths import home
from labcore.runs.spec.run_spec import every_knob
from tests.app.seeding import html, mounted, seed

ROOT = Path(__file__).resolve().parents[2]
# What the browser and Streamlit keep for themselves.
RESERVED = {"C", "R"}
FINDING = Finding("Most groups give no gradient", "7 of 8", "Use larger groups.", rule="zero_variance")


def test_no_shortcut_that_a_button_declares_is_missing():
    """A `shortcut=` that cannot be read from the code would not be in the table: then `declared` must learn it."""
    for path in (*(ROOT / "app").rglob("*.py"), *(ROOT / "pages").glob("*.py")):
        if "shortcut" in (source := path.read_text("utf-8")) and path.name != "bar.py":  # which is read as it is
            calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)
                     and any(each.arg == "shortcut" for each in node.keywords)]
            assert len(list(shortcuts.declared(source))) >= len(calls), path.name
    found = {(each.keys, each.label) for each in shortcuts.shortcuts()}
    assert {("Ctrl+Enter", "Run"), ("K", "Pause"), ("K", "Resume"), ("P", "Projector"), ("N", "Step"), ("F", "Fork"),
            ("Ctrl+Enter", "Run it live")} <= found
    assert not {each.keys for each in shortcuts.shortcuts()} & RESERVED


def test_no_two_buttons_of_a_page_share_a_key():
    """In each state of a run the bar beside all else that a page may show; a dialog does not silence the bar."""
    besides: dict[str, list[tuple[str, str]]] = {}
    for path in (ROOT / "app").rglob("*.py"):
        if path.name != "bar.py":
            besides.setdefault(shortcuts.page_of(path), []).extend(
                (keys, label) for keys, label, _ in shortcuts.declared(path.read_text("utf-8")))
    training = besides.pop(shortcuts.TRAINING)
    pages = {f"{shortcuts.TRAINING}, {state or 'before a run'}": [
        *training, *((action.shortcut, action.label) for action in actions if action.shortcut)]
        for state, actions in ACTIONS.items()}
    for page, buttons in (pages | besides).items():
        keys = [keys for keys, _ in dict.fromkeys(buttons)]
        assert len(keys) == len(set(keys)), f"{page}: {sorted(buttons)}"


@pytest.mark.parametrize("source, found", [
    ('st.button("A", shortcut="X")', [("X", "A", "")]),
    ('def f():\n  st.button(label="A", help="B", shortcut="X")', [("X", "A", "B")]),
    ('st.button(f"A {x} b", shortcut="X")', [("X", "A … b", "")]),
    ('for a, b, c in (("A", 0, "X"), ("B", 1, "Y")):\n  st.button(a, shortcut=c)', [("X", "A", ""), ("Y", "B", "")]),
    ('st.button("A")', []), ('st.button("A", shortcut=unknown)', [])])
def test_shortcuts_are_read_from_the_code(source, found):
    assert list(shortcuts.declared(source)) == found


@pytest.mark.parametrize("path, page", [
    ("app/training/bar.py", "Pages that train"), ("app/home.py", "Home"), ("app/runs/page.py", "Runs"),
    ("app/components/playground_view/__init__.py", "Playground"), ("app/compare/launch/form.py", "Compare"),
    ("pages/runs.py", "Runs")])
def test_a_shortcut_is_of_the_page_that_draws_it(path, page):
    assert shortcuts.page_of(ROOT / path) == page


def test_the_reference_has_shortcuts_metrics_knobs_commands_settings_and_pages(page):
    test = page("help")
    text = html(test)
    assert "<kbd>Ctrl+Enter</kbd>" in text and str(home()) in text and "lab.db" in text
    assert all(f"<code>{key}</code>" in text for key in METRICS) and "<code>learning_rate</code>" in text
    commands = test.code[0].value
    assert all(re.search(rf"^ +{command} ", commands, re.MULTILINE) for command in ("run", "delete", "compare", "set"))
    assert all(html_text(each.words) in text for each in PAGES) and "RL_LAB_JUDGE_KEY" in text


def test_one_search_finds_questions_words_metrics_and_knobs_and_is_in_the_link(page):
    test = page("help", find="ENTROPY bonus")
    text = html(test)
    assert 'id="entropy_collapse" open' in text and 'id="group_size"' not in text
    assert "<code>entropy_coef</code>" in text and "<b>Reward std</b>" not in text
    assert test.text_input[0].value == "ENTROPY bonus"
    nothing = page("help", find="<code>")
    assert any("No match" in caption.value for caption in nothing.caption) and "rl-question\"" not in html(nothing)


def test_a_link_opens_its_question_and_one_that_asks_nothing_known_says_so(page):
    assert 'class="rl-answered"><details class="rl-question" id="kl_negative" open' in html(page("help",
                                                                                            question="kl_negative"))
    strange = page("help", question="no_such")
    assert "rl-answered\"" not in html(strange) and any("question" in each.value for each in strange.caption)


def test_every_answer_leads_to_a_lesson_or_a_page_that_exists():
    there = {lesson.name for lesson in lessons()[0]}
    for question in QUESTIONS:
        said = help.question_html(question, is_open=False)
        for address in re.findall(r'href="([^"]*)"', said):
            name, _, lesson = address.partition("?lesson=")
            assert name in {page.key for page in PAGES} and (not lesson or lesson in there), question.key
        assert html_text(question.answer) in said


@pytest.mark.parametrize("place, key", [
    (lambda: question_link.beside([{"metrics": [{"key": "kl/k1"}, {"key": "kl"}]}])[0]["ask"], "kl_negative"),
    (lambda: controls.words(every_knob()["beta"], going=False), "beta"),
    (lambda: doctor_line.line([FINDING]), "zero_variance"), (lambda: doctor_line.details(7, FINDING), "zero_variance"),
    (lambda: help._metric("kl/k1")[2], "kl_negative"), (lambda: help._knob(every_knob()["beta"])[2], "beta")])
def test_charts_knobs_and_findings_lead_to_their_question(place, key):
    assert f"help?question={key}" in place()


def test_the_charts_of_a_run_s_page_lead_to_their_questions(page, lab):
    panels = {panel["key"]: panel["ask"] for panel in mounted(page("llm", run=seed(lab.store)), "panels")["panels"]}
    assert "help?question=no_signal" in panels["reward"] and "help?question=kl_runaway" in panels["kl"]


def test_where_there_is_no_question_there_is_no_link():
    assert question_link.as_html(None) == question_link.as_markdown(None) == ""
