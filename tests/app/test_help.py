"""Help: every page, every shortcut, every metric and knob, and where the files are."""

import ast
import re
from pathlib import Path

import pytest

from app import help, shortcuts
from labcore.catalog.metrics import METRICS
from labcore.runs.files.paths import home
from tests.app.seeding import html

ROOT = Path(__file__).resolve().parents[2]
# What the browser and Streamlit keep for themselves.
RESERVED = {"C", "R"}


def test_every_page_is_told_in_a_line():
    assert {page.key for page in help.PAGES} == {path.stem for path in (ROOT / "pages").glob("*.py")}


def test_no_shortcut_that_a_button_declares_is_missing():
    """A `shortcut=` that cannot be read from the code would not be in the table: then `declared` must learn it."""
    for path in (*(ROOT / "app").rglob("*.py"), *(ROOT / "pages").glob("*.py")):
        calls = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)
                 and any(each.arg == "shortcut" for each in node.keywords)]
        if path.name != "bar.py":  # whose actions are read as they are
            assert len(list(shortcuts.declared(path.read_text("utf-8")))) >= len(calls), path.name
    found = {(each.keys, each.label) for each in shortcuts.shortcuts()}
    assert {("Ctrl+Enter", "Run"), ("P", "Pause"), ("N", "Step"), ("F", "Fork"), ("Ctrl+Enter", "Run it live")} <= found
    assert not {each.keys for each in shortcuts.shortcuts()} & RESERVED


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


def test_the_page_tells_shortcuts_words_metrics_commands_and_places(page):
    test = page("help")
    text = html(test)
    assert "<kbd>Ctrl+Enter</kbd>" in text and str(home()) in text and "lab.db" in text
    assert all(f"<code>{key}</code>" in text for key in METRICS) and "<code>learning_rate</code>" in text
    commands = test.code[0].value
    assert all(re.search(rf"^ +{command} ", commands, re.MULTILINE) for command in ("run", "delete", "compare", "set"))
    assert {link.proto.label for link in test.get("page_link")} >= {page.title for page in help.PAGES if page.words}


def test_one_search_finds_words_metrics_and_knobs_and_is_in_the_link(page):
    test = page("help", find="ENTROPY")
    text = html(test)
    assert "<code>entropy</code>" in text and "<code>entropy_coef</code>" in text and "<b>Reward std</b>" not in text
    assert test.text_input[0].value == "ENTROPY"
    nothing = page("help", find="<code>")
    assert nothing.caption and any("No match" in caption.value for caption in nothing.caption)
