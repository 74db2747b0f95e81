"""The Studies page: all ten claims with their results, or one of them. Polls only while runs of that one are
running."""

from __future__ import annotations

import html

import streamlit as st

from app import link, listing, session
from app.lab import lab
from app.status import duration
from app.studies import picture, study_page
from app.studies.place import Place
from app.tokens import literal
from labcore.analysis.studies import plan, recorded
from labcore.analysis.studies.rows import STUDIES
from labcore.analysis.studies.study import Study

INTRO = ("Claims of papers and tutorials, tested here on small models. Each study has a claim, its runs, an interval "
         "over three seeds, and a verdict that follows from the interval by a fixed rule. A claim about large "
         "models may hold there and not here, so a disagreement is a result about this scale.")


def page() -> None:
    """The whole page."""
    session.problem()
    place, faults = link.read(Place)
    for fault in faults:
        st.warning(literal(fault.sentence), icon=":material/error:")
    if place.study:
        study_page.show(STUDIES[place.study])
    else:
        _all()


def _all() -> None:
    st.header("Studies", anchor=False)
    st.html(f'{picture.CSS}<div class="rl-claim">{html.escape(INTRO)}</div>')
    rows, kept = lab().store.sweep_runs()[::-1], recorded.read()
    with listing.entries():
        for study in STUDIES.values():
            with listing.entry(border=True):
                st.html(_words(study, kept.get(study.key), plan.found(study, rows)), width="stretch")
                st.button("Open", icon=":material/arrow_forward:", key=f"study:{study.key}",
                          on_click=lambda key=study.key: link.go(link.written(Place(key))))


def _words(study: Study, kept: recorded.Recorded | None, runs: plan.Runs) -> str:
    """A study in three lines of HTML: its title and recorded verdict, its claim, and what there is of it here."""
    there = sum(len(rows) for rows in runs.finished().values())
    count = len(study.settings) * len(study.seeds)
    verdict = f" {picture.badge(kept.verdict)}" if kept else ""
    took = f" · recorded: {duration(kept.seconds)} of training on {kept.machine}" if kept else ""
    here = f" · {there} of {count} runs are here" if there else ""
    return (f"<div><b>{html.escape(study.title)}</b>{verdict}<br>{html.escape(study.claim)}<br>"
            f'<span class="rl-muted">{html.escape(study.source)} · {count} runs{html.escape(took)}{here}</span></div>')
