"""The Studies page: all claims with their results, or one of them. Polls only while runs of that one are running."""

from __future__ import annotations

import html
from collections import Counter
from dataclasses import dataclass, replace

import streamlit as st

from app import link, listing, session
from app.lab import lab
from app.link import param
from app.scale import Scale
from app.status import duration
from app.studies import picture, study_page
from app.tokens import literal
from labcore.analysis.studies import plan, recorded
from labcore.analysis.studies.recorded import Recorded
from labcore.analysis.studies.rows import STUDIES
from labcore.analysis.studies.study import Study
from labcore.analysis.studies.verdict import WORDS, needed

INTRO = ("Claims of papers and tutorials, tested on small models. Each study has runs, an interval over seeds, and a "
         "verdict that a fixed rule derives from the interval. A claim may hold for large models and fail here.")


@dataclass(frozen=True)
class Place:
    """The link's parameters: `study` (empty: the list of all studies), and the `model` of a study that asks for one."""

    study: str = param("", link.one_of(STUDIES))
    model: str = param("")


def page() -> None:
    """The whole page."""
    session.problem()
    place, faults = link.read(Place)
    for fault in faults:
        st.warning(literal(fault.sentence), icon=":material/error:")
    if place.study:
        study = STUDIES[place.study]
        if study.asks_model:
            study = replace(study, model=place.model.strip())
        study_page.show(study, lambda model: link.go(link.written(Place(study.key, model))))
    else:
        _all()


def _all() -> None:
    st.header("Studies", anchor=False)
    rows, kept = lab().store.sweep_runs()[::-1], recorded.read()
    counts = Counter(each.verdict for each in kept.values())
    told = "".join(f"<span><b>{counts[key]}</b> {picture.badge(key)}</span>" for key in WORDS if counts[key])
    st.html(f'{picture.CSS}<div class="rl-claim"><small>{html.escape(INTRO)}</small></div>'
            f'<div class="rl-told">Recorded verdicts {told}</div>')
    scale_of = picture.scales((each for study in STUDIES.values() for each in study.deciding),
                              [each.findings for each in kept.values()])
    with listing.entries():
        for study in STUDIES.values():
            with listing.entry(border=True):
                st.html(_words(study, kept.get(study.key), plan.found(study, rows), scale_of), width="stretch")
                st.button("Open", icon=":material/arrow_forward:", key=f"study:{study.key}",
                          on_click=lambda key=study.key: link.go(link.written(Place(key))))


def _words(study: Study, kept: Recorded | None, runs: plan.Runs, scale_of: dict[str, Scale]) -> str:
    """A study as HTML: its title and recorded verdict, its claim, its deciding intervals, and what there is here."""
    there = sum(len(rows) for rows in runs.finished().values())
    count = len(study.settings) * len(study.seeds)
    verdict = f" {picture.badge(kept.verdict)}" if kept else ""
    took = f" · recorded: {duration(kept.seconds_of(study, count))} of training" if kept else ""
    here = f" · {there} runs in this lab" if there else ""
    need = needed(study, kept.findings) if kept else None
    more = "" if need is None else (f" · about {need.seeds} seeds would decide" if need.seeds else
                                    " · the difference is too small to decide")
    drawn = picture.glance(study, kept, scale_of) if kept else ""
    return (f'<div class="rl-study"><div><b class="rl-title">{html.escape(study.title)}</b>{verdict}<br>'
            f'{html.escape(study.claim)}<br><span class="rl-muted">{html.escape(study.source)} · {count} runs'
            f'{took}{more}{here}</span></div>'
            f'<div class="rl-glance">{drawn}</div></div>')
