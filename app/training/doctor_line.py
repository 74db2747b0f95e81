"""The doctor's line on top of a run: the fault at the step shown, its evidence in numbers, and the fix as a button.

A run without any finding has no line. After the first finding the place of the line is kept, so that nothing below it
moves.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import streamlit as st

from app import question_link
from app.lab import active, lab
from app.naming import written
from app.session import show_error
from app.tokens import literal
from app.training import forking
from app.training.feed import Feed
from labcore.analysis.doctor import doctor
from labcore.analysis.doctor.finding import Finding
from labcore.catalog import questions
from labcore.catalog.knob import Knob, Value, shown
from labcore.errors import LabError
from labcore.runs import fork
from labcore.runs.files.paths import read_only
from labcore.runs.spec.run_spec import RunSpec, knobs_of, with_knob
from labcore.runs.store.rows import RunRow

WORDS = {"problem": "Problem", "warning": "Warning", "note": "Note"}


@dataclass(frozen=True)
class Remedy:
    """A button with a fix: `label`, and whether it sets the knob of the going run or asks for a fork."""

    label: str
    forks: bool


def show(run: RunRow, feed: Feed, at: int | None, steered: bool) -> None:
    """Show the findings at step `at` (None: the newest). `steered`: the knobs beside them are those of this run."""
    found = doctor.holding(feed.events, at)
    ever = any(event.kind == doctor.EVENT for event in feed.events)
    with st.container(key="doctor" if ever else "no_doctor", horizontal=True, vertical_alignment="center", gap="small"):
        st.html(line([finding for _, finding in found]))
        if not found:
            return
        fix_button = _fix_button_of(run, feed, at) if steered else lambda place, since, finding: None
        fix_button("line", *found[0])
        with st.popover(f"+{len(found) - 1} more" if found[1:] else "Details", key="doctor_more"):
            for since, finding in found:
                st.html(details(since, finding))
                fix_button("list", since, finding)


def line(found: list[Finding]) -> str:
    """The most severe finding as one line of HTML; an empty line if there is no finding."""
    if not found:
        return '<div class="rl-doctor" role="status">&nbsp;</div>'
    ink, first = html.escape, found[0]
    return (f'<div class="rl-doctor rl-{first.severity}" role="status" title="{ink(f"{first.text}. {first.fix}")}">'
            f"<i>{WORDS[first.severity]}</i><b>{ink(first.verdict)}</b>&nbsp;"
            f"{question_link.as_html(questions.of_finding(first.rule))}&nbsp;<span>{ink(first.evidence)}</span></div>")


def details(since: int, finding: Finding) -> str:
    """All parts of a finding as HTML."""
    ink = html.escape
    return (f'<div class="rl-finding rl-{finding.severity}"><i>{WORDS[finding.severity]}</i>'
            f"<b>{ink(finding.verdict)}</b>, seen at step {since:,}<br>{ink(finding.evidence[:1].upper())}"
            f'{ink(finding.evidence[1:])}.<br><span class="rl-muted">Fix: {ink(finding.fix)}</span> '
            f"{question_link.as_html(questions.of_finding(finding.rule))}</div>")


def remedy(spec: RunSpec, going: bool, values: Mapping[str, Value], finding: Finding) -> Remedy | None:
    """The button of a finding; None where no knob fixes it, or the knob has been moved since.

    `going`: the run takes knobs now, and its newest step is shown. `values` are its knobs there. If a fault began at a
    known step, the remedy is a fork from before that step, because the policy has been damaged since.
    """
    knob = next((knob for knob in knobs_of(spec.row, spec.task_row) if knob.key == finding.knob), None)
    if knob is None or values[knob.key] == finding.value or finding.value is None:
        return None
    forks = not going or bool(finding.began) or knob.effect == "restart"
    if forks and knob not in fork.movable(spec, spec.algorithm):
        return None
    try:
        now = replace(spec, knobs=dict(values))
        knob.check(finding.value) if forks else with_knob(now, knob.key, finding.value)
    except LabError:  # beyond what the model or the other knobs allow
        return None
    return Remedy(("Fork with " if forks else "") + change(knob, values[knob.key], finding.value), forks)


def change(knob: Knob, before: Value, after: Value) -> str:
    """ "η 0.001 → 0.0003"; of a choice its new value alone."""
    if knob.choices:
        return f"{knob.name}: {written(knob.key, after)}"
    return f"{knob.name} {shown(before)} → {shown(after)}"


def _fix_button_of(run: RunRow, feed: Feed, at: int | None) -> Callable[[str, int, Finding], None]:
    """Draws the button of a finding at a place of its own."""
    values, going = feed.knobs(at), active(run) and at is None

    def fix_button(place: str, since: int, finding: Finding) -> None:
        found = remedy(run.spec, going, values, finding)
        if found is None or read_only():
            return
        do, icon = (_fork, "call_split") if found.forks else (_set, "build")
        st.button(found.label, key=f"mend:{place}:{finding.rule}", icon=f":material/{icon}:", on_click=do,
                  args=(run.id, finding, finding.began or since), help=literal(finding.fix))

    return fix_button


def _set(run_id: str, finding: Finding, since: int) -> None:
    try:
        lab().store.ask(run_id, "set", {"knob": finding.knob, "value": finding.value})
    except LabError as error:  # the run has just ended, say
        show_error(str(error))


def _fork(run_id: str, finding: Finding, since: int) -> None:
    assert finding.value is not None  # else it has no button
    forking.open_with_value(run_id, finding.knob, finding.value, since)
