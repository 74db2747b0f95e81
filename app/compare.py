"""The Compare page: runs chosen by a link, their controls, and one view of them. Polls only while one of them goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from app import (
    answers,
    compare_controls,
    compare_curves,
    compare_data,
    compare_empty,
    compare_pick,
    compare_place,
    compare_plane,
    compare_table,
    live_chart,
    one_batch,
    session,
    sweep_view,
)
from app.compare_chart import CHART
from app.compare_data import Chosen, Source
from app.theme import ground
from app.tokens import literal
from labcore.errors import LabError
from labcore.runs.rows import RunRow


@dataclass(frozen=True)
class View:
    """One way to look at the runs. `draw` gets them, and whether the browser may have lost what it was given; `every`
    so many seconds it is drawn again while they go. `below` is drawn once, beneath it."""

    label: str
    draw: Callable[[Chosen, bool], None]
    every: float = 1.0
    fits: Callable[[Chosen], bool] = lambda chosen: True
    below: Callable[[Chosen], None] = lambda chosen: None


def _answers(chosen: Chosen, full: bool) -> None:
    looks = compare_data.look_of(chosen)
    dark = ground() == "dark"
    answers.panel(chosen.run_ids, {run: looks[chosen.place_of(run)]["colour"][dark] for run in chosen.run_ids},
                  polled=chosen.active)


def _speaks(chosen: Chosen) -> bool:
    return any(isinstance(source, RunRow) and answers.speaks(source) for source in chosen.sources)


VIEWS: dict[str, View] = {
    "curves": View("Curves", compare_curves.show),
    "sweep": View("Sweep", sweep_view.show, every=2.0, fits=sweep_view.fits),
    "table": View("Table", compare_table.show, every=3.0, below=compare_table.files),
    "plane": View("Reward and KL", compare_plane.show, every=2.0, fits=compare_plane.fits),
    "answers": View("Answers", _answers, every=3.0, fits=_speaks),
    "batch": View("One batch", lambda chosen, full: one_batch.panel(chosen.run_ids, chosen.active), every=3.0,
                  fits=_speaks),
}


def page() -> None:
    """The whole page."""
    live_chart.warm(CHART)
    place, faults = compare_place.of(st.query_params.to_dict(), tuple(VIEWS))
    session.problem()
    sources, missing = compare_data.find(place)
    chosen, unfit = compare_data.choose(place, sources)
    fitting = {key: view.label for key, view in VIEWS.items() if chosen.traces and view.fits(chosen)}
    above, beneath = st.container(key="compare_head" if fitting else None), st.container()
    with beneath:  # first, since the browser takes longest for charts; its place is kept by the style of what is above
        if fitting:
            _draw(chosen, VIEWS[place.view if place.view in fitting else compare_place.CURVES], sources)
        else:
            compare_empty.show()
    with above:
        compare_pick.row(place, sources)
        for sentence in (*faults, *missing, *unfit):
            st.warning(literal(sentence), icon=":material/error:")
        if fitting:
            compare_controls.row(chosen, fitting)


def _draw(chosen: Chosen, view: View, sources: list[Source]) -> None:
    st.session_state["compare:new"] = True  # the runs were just read
    st.session_state["compare:all"] = True  # a full run of the script may have mounted the charts anew
    st.fragment(_tick, run_every=view.every if chosen.active else None, key="compare")(
        chosen, view, sources, st.query_params.to_dict())
    view.below(chosen)


def _tick(chosen: Chosen, view: View, seen: list[Source], query: dict[str, str]) -> None:
    full = st.session_state.pop("compare:all", False)
    try:
        if not st.session_state.pop("compare:new", False):
            chosen = _again(chosen, seen, query)
        compare_curves.sent().begin(chosen.place)
        view.draw(chosen, full)
    except LabError as error:  # what was there a moment ago is gone
        st.error(literal(str(error)), icon=":material/error:")


def _again(chosen: Chosen, seen: list[Source], query: dict[str, str]) -> Chosen:
    """The runs as they are now; where the page around the view would be another one, it is run again."""
    sources, _ = compare_data.find(chosen.place)
    if _shape(sources) != _shape(seen) or st.query_params.to_dict() != query or (
            compare_data.logged_by(sources) != chosen.logged):
        st.rerun()
    now = chosen.again(sources)
    if _moved(now) != _moved(chosen):
        st.rerun()
    return now


def _moved(chosen: Chosen) -> list[tuple]:
    """The knobs that were moved by hand: the groups, and so the legend and the controls, depend on them."""
    return [trace.changes for trace in chosen.traces]


def _shape(sources: list[Source]) -> list[tuple]:
    """What the page around the view depends on."""
    return [(source.id, source.state, source.step > 0) if isinstance(source, RunRow) else source for source in sources]
