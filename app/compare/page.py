"""The Compare page: runs chosen by a link, their controls, and one view of them. It polls only while one of the runs is
running."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from app import link, listing, resend, session
from app.compare import answers, controls, curves, data, plane, run_picker, table, verdict
from app.compare.data import MOST_RUNS, MOST_SETTINGS, Chosen, Source
from app.compare.launch.form import form
from app.compare.one_batch import view as one_batch_view
from app.compare.place import CURVES, VIEWS, Place, go
from app.compare.run_picker import setting, sweep_words
from app.compare.sweep import view as sweep_view
from app.compare.sweep.large import view as at_size
from app.components.compare_chart import CHART
from app.lab import errors_shown, in_words, lab
from app.theme import ground
from labcore.analysis.compare.best import Standing
from labcore.errors import LabError
from labcore.runs.store.rows import APART, RunRow
from labcore.runs.sweep import sweeps

LATEST = 200  # runs that are looked through for the latest of each task
SHOWN = 4


@dataclass(frozen=True)
class View:
    """One view of the runs. `draw` gets the runs, their standing, and whether the browser may have lost its data.
    `every`: seconds between two drawings while runs are running. `below` is drawn once, beneath the view. `judges`: the
    view uses the chosen metric, baseline and axis; only then the standing is computed."""

    draw: Callable[[Chosen, Standing | None, bool], None]
    every: float = 1.0
    fits: Callable[[Chosen], bool] = lambda chosen: True
    below: Callable[[Chosen], None] = lambda chosen: None
    judges: bool = True


def _answers(chosen: Chosen, stand: Standing | None, full: bool) -> None:
    looks = data.look_of(chosen)
    dark = ground() == "dark"
    answers.panel(chosen.run_ids, {run: looks[chosen.place_of(run)]["colour"][dark] for run in chosen.run_ids},
                  polled=chosen.active)


def _one_batch(chosen: Chosen, stand: Standing | None, full: bool) -> None:
    algorithms = [group.traces[0].spec.algorithm if group.traces[0].spec else "" for group in chosen.groups]
    one_batch_view.panel(chosen.run_ids, chosen.active, {key: place for place, key in enumerate(algorithms)
                                                         if algorithms.count(key) == 1})


def _speaks(chosen: Chosen) -> bool:
    return any(isinstance(source, RunRow) and answers.supported(source) for source in chosen.sources)


DRAWN: dict[str, View] = {
    "curves": View(curves.show),
    "sweep": View(sweep_view.show, every=2.0, fits=sweep_view.fits),
    "table": View(table.show, every=3.0, below=table.files),
    "plane": View(plane.show, every=2.0, fits=plane.fits),
    "answers": View(_answers, every=3.0, fits=_speaks, judges=False),
    "batch": View(_one_batch, every=3.0, fits=_speaks, judges=False),
}


def page() -> None:
    """The whole page."""
    CHART.warm()
    place, faults = link.read(Place)
    session.problem()
    sources, missing = data.find(place)
    if at_size.fits(place, sources):
        at_size.show(place, sources, [*(fault.sentence for fault in faults), *missing])
        return
    chosen, unfit = data.choose(place, sources)
    fitting = {key: VIEWS[key] for key, each in DRAWN.items() if chosen.traces and each.fits(chosen)}
    above, beneath = st.container(key="compare_head" if fitting else None), st.container()
    view = DRAWN[place.view if place.view in fitting else CURVES]
    try:
        with beneath:  # first: charts take the browser longest. The style of what is above keeps its place
            if fitting:
                _draw(chosen, view, sources)
            else:
                _empty()
    finally:  # a view that fails must not take the way to another one with it
        with above:
            run_picker.row(place, sources)
            for sentence in (*(fault.sentence for fault in faults), *missing, *unfit):
                st.warning(in_words(sentence), icon=":material/error:")
            if fitting:
                controls.row(chosen, fitting, view.judges)


def _draw(chosen: Chosen, view: View, sources: list[Source]) -> None:
    st.session_state["compare:new"] = True  # the runs were just read
    resend.mounted(curves.CHARTS)  # a full run of the script may have mounted the charts anew
    st.fragment(_tick, run_every=view.every if chosen.active else None, key="compare")(
        chosen, view, sources, link.query())
    view.below(chosen)


@errors_shown()
def _tick(chosen: Chosen, view: View, seen: list[Source], query: dict[str, str]) -> None:
    full = resend.full(curves.CHARTS)
    try:
        if not st.session_state.pop("compare:new", False):
            chosen = _again(chosen, seen, query)
        curves.sent().begin(chosen.place)
        stand = verdict.stand_of(chosen) if view.judges else None  # once: it reads every row of every run
        if view.judges:
            verdict.line(chosen, stand)
        view.draw(chosen, stand, full)
    except LabError as error:  # what was there a moment ago is gone
        st.error(in_words(error), icon=":material/error:")


def _again(chosen: Chosen, seen: list[Source], query: dict[str, str]) -> Chosen:
    """The runs as they are now; where the page around the view would be another one, it is run again."""
    sources, _ = data.find(chosen.place)
    if _shape(sources) != _shape(seen) or link.query() != query or (data.logged_by(sources) != chosen.logged):
        st.rerun()
    now = chosen.again(sources)
    if _moved(now) != _moved(chosen):
        st.rerun()
    return now


def _moved(chosen: Chosen) -> list[tuple[Any, ...]]:
    """The knobs that were changed mid-run: the groups, and so the legend and the controls, depend on them."""
    return [trace.changes for trace in chosen.traces]


def _shape(sources: list[Source]) -> list[tuple[Any, ...] | str]:
    """The state on which the page around the view depends."""
    return [(source.id, source.state, source.step > 0) if isinstance(source, RunRow) else source for source in sources]


# ---------------------------------------------------------------- before runs are chosen

def _empty() -> None:
    """One line, then the latest comparisons, and the latest runs of each task."""
    st.html(f'{verdict.CSS}<div class="rl-headline">Which algorithm, and at what cost?<small>Choose runs above, open '
            "an earlier comparison, or start one. Runs are compared at equal tokens, updates and seconds, with "
            "intervals over seeds.</small></div>")
    left, right = st.columns([1.15, 1], gap="large")
    with left:
        st.subheader("Start a comparison", anchor=False)
        form()
    with right, listing.entries():
        _earlier()


def _earlier() -> None:
    """Earlier comparisons and runs, to open."""
    if projects := lab().store.projects():
        st.subheader("Projects", anchor=False)
        for name, many in projects.items():
            words = (f'<div class="rl-status"><b>{html.escape(name)}</b> <span class="rl-muted">{many:,} '
                     f"run{'s' if many > 1 else ''}{' of the lab' if name in APART else ''}</span></div>")
            _choice(words, f"project:{name}", Place(project=name))
    if found := sweeps(lab().store, apart=False)[:SHOWN]:
        st.subheader("Latest sweeps and comparisons", anchor=False)
        for sweep in found:
            _choice(sweep_words(sweep.title, sweep.runs), sweep.id, Place(sweep=sweep.id))
    runs = lab().store.runs(limit=LATEST, apart=False)
    if tasks := by_task([run for run in runs if run.step and run.sweep is None]):
        st.subheader("Latest runs on one task", anchor=False)
        for (_, task), same in tasks[:SHOWN]:
            labels = dict.fromkeys(run.spec.row.label for run in same)
            words = (f'<div class="rl-status"><b>{same[0].spec.kind_row.label}: {html.escape(task)}</b> '
                     f'<span class="rl-muted">{", ".join(labels)} · {len(same)} runs</span></div>')
            _choice(words, f"task:{task}", Place(runs=tuple(run.id for run in same)))
    if not runs:
        st.subheader("Results", anchor=False)
        st.markdown("Overlaid curves with bands over seeds, a table of verdicts with their p-values, reward against "
                    "KL, and the answers of each model.")


def by_task(runs: Sequence[RunRow]) -> list[tuple[tuple[str, str], list[RunRow]]]:
    """The newest runs of each kind and task, newest task first; at least two, of at most as many settings as fit."""
    found: dict[tuple[str, str], list[RunRow]] = {}
    for run in runs:
        same = found.setdefault((run.spec.kind, run.spec.task), [])
        if len({setting(other) for other in (*same, run)}) <= MOST_SETTINGS and len(same) < MOST_RUNS:
            same.append(run)
    return [(task, same) for task, same in found.items() if len(same) > 1]


def _choice(words: str, key: str, place: Place) -> None:
    with listing.entry():
        st.html(words, width="stretch")
        st.button("Compare", icon=":material/query_stats:", key=f"compare:{key}", on_click=lambda: go(place))
