"""The doctor's findings in imported metrics, as text for a page."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import question_link
from app.tokens import literal
from app.training.doctor_line import WORDS
from labcore.analysis.doctor.doctor import course
from labcore.analysis.doctor.finding import Finding
from labcore.catalog import questions
from labcore.runs.imports import imported
from labcore.runs.imports.imported import Imported

MOST_ROWS = 20_000  # of a run that is examined while somebody waits: about a second
_COLOURS = {"problem": "red", "warning": "orange", "note": "gray"}


def lines(run: Imported) -> list[str]:
    """Return the findings at the last step, the most severe first, each as a line of Markdown. Raises LabError if the
    run is gone or damaged."""
    if run.steps > MOST_ROWS:
        return [f":gray[This run is too long to examine here. Use the command line: `python -m labcore doctor "
                f"{run.id}`]"]
    return [f":{_COLOURS[found.severity]}[**{WORDS[found.severity]}**] {literal(found.text)}. {literal(found.fix)}"
            + question_link.as_markdown(questions.of_finding(found.rule)) for found in _findings(run.id, run.created)]


@st.cache_resource(max_entries=64, show_spinner=False)
def _findings(run_id: str, created: float) -> Sequence[Finding]:
    """Examine a run once, and again where its file was imported again: then `created` is another time."""
    after, _ = course(None, imported.steps(run_id))
    return after.findings
