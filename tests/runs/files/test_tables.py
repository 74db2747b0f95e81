"""No text of a CSV that the lab writes is a formula to a spreadsheet, and what was written is read as it was."""

import csv
import io
import json
import re
from types import SimpleNamespace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from labcore.analysis.compare.loading import load
from labcore.analysis.compare.table import compare
from labcore.exports.folder import write_events, write_knobs, write_metrics
from labcore.runs.files import tables
from labcore.runs.imports import imported
from labcore.runs.store.rows import Event, Step
from labcore.runs.store.store import Store
from tests.imports import ROOT

EVIL = ["a\r=1", "a\n=1", "'", "=1+1", "+1", "-2+3|cmd", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", "-", "'=1",
        '=HYPERLINK("x,y")']


def rows(content: bytes) -> list[list[str]]:
    """The cells as a spreadsheet reads them."""
    return list(csv.reader(io.StringIO(content.decode(), newline="")))


def is_text(cell: str) -> bool:
    """Whether a spreadsheet shows the cell: nothing that it would compute, though a number may have a sign."""
    try:
        float(cell)
    except ValueError:
        return not cell.startswith(tables.FORMULA)
    return True


@pytest.mark.parametrize("evil", EVIL[3:])
def test_a_formula_is_shown_and_numbers_stay_numbers(evil):
    (head, row) = rows(tables.written([evil, "b"], [[evil, -1.5]]))
    assert head == [f"'{evil}", "b"] and row == [f"'{evil}", "-1.5"]


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), min_size=1,
                max_size=4))
@example(EVIL)
@example(["''=1", "'", "", "'tis"])
def test_what_was_written_is_read_as_it_was(texts):
    content = tables.written(texts, [texts])
    assert list(tables.cells(io.StringIO(content.decode(), newline=""))) == [texts, texts]
    assert all(is_text(cell) for row in rows(content) for cell in row)


@pytest.mark.parametrize("evil", EVIL[3:])
def test_whatever_a_user_wrote_stands_in_no_export_as_a_formula(tmp_path, evil):
    """A pattern in the timeline of the knobs and in the events, and the label of imported metrics in a comparison."""
    path = tmp_path / "some.csv"
    write_knobs(path, [SimpleNamespace(step=2, update=1, knob="pattern", before=evil, value=evil)])
    assert rows(path.read_bytes())[1][3:] == [f"'{evil}"] * 2
    write_events(path, [Event(1, 2, "knob", {"text": evil, "to": evil}, 1.5)])
    assert rows(path.read_bytes())[1][3] == f"'{evil}" and json.loads(rows(path.read_bytes())[1][4])["to"] == evil


def test_numbers_of_a_run_are_written_to_the_last_digit_and_come_back(tmp_path):
    step = Step(3, 10, 0, 0.1 + 0.2, {"reward": -1e-17, "kl": 1 / 3, "updates": 4.0})
    write_metrics(tmp_path / "metrics.csv", [step])
    assert rows((tmp_path / "metrics.csv").read_bytes())[1] == ["3", "10", "0.30000000000000004", "-1e-17",
                                                                "0.3333333333333333", "4.0"]
    (about,) = imported.keep(Store(), "metrics.csv", (tmp_path / "metrics.csv").read_bytes(), label="=cmd()")
    assert imported.rows(about.id) == (step,) and about.label == "=cmd()"
    (row,) = compare(load(Store(), [about.id])).rows
    assert rows(tables.written(["group"], [[row.label]]))[1][0].startswith("'=cmd()")


def test_there_is_no_other_writer_of_csv():
    for part in ("labcore", "app", "pages"):
        for path in (ROOT / part).rglob("*.py"):
            text = path.read_text("utf-8")
            if path.parent.name == "handover":  # scripts that other tools run write as these do
                continue
            assert path.name == "tables.py" or not re.search(r"csv\.(writer|DictWriter)|\.to_csv\(", text), path
