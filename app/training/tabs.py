"""The tabs below the curves, which explain them. Only the open tab is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

import streamlit as st

from app import link
from app.lab import lab
from app.link import Param
from app.marked import worded
from app.status import duration
from app.training import equation, export, log
from app.training.feed import Feed
from app.widget_state import widget_state
from labcore.analysis.doctor import doctor
from labcore.catalog.knob import Knob
from labcore.runs.spec.run_spec import knobs_of
from labcore.runs.store.rows import Event, RunRow

TAB = Param("tab", "")
RECENT = 200  # steps in the table of numbers
Draw = Callable[[RunRow, Feed, int], None]  # the run, what was read of it, and the step that the page shows
Tabs = Mapping[str, tuple[Draw, Callable[[RunRow], bool]]]  # name -> (what draws it, whether a run has it)


def show(run: RunRow, feed: Feed, step: int, own: Tabs) -> None:
    """The tabs of a run at a step, its kind's own first; tabs for which its algorithm has no data are left out."""
    offered = {name: draw for name, (draw, fits) in {**own, **TABS}.items() if fits(run)}
    first = next(iter(offered))
    shown = widget_state("why", chosen if (chosen := link.get(TAB)) in offered else first, of=tuple(offered))
    at_first = st.session_state.setdefault(f"tab:{shown.key}", shown.value)  # with another default they are other tabs
    tabs = st.tabs(list(offered), default=at_first, key=shown.key,
                   on_change=lambda: link.put(TAB, shown.taken(), default=first))
    for name, tab in zip(offered, tabs, strict=True):
        if tab.open:
            with tab:
                offered[name](run, feed, step)


def _events(run: RunRow, feed: Feed, step: int) -> None:
    """Changes of knobs first, then what else happened; checkpoints, of which there are many, are folded."""
    turns, others, checkpoints = grouped(feed.events, knobs_of(run.spec.row, run.spec.task_row))
    if turns:
        st.markdown("**Changes of knobs**")
        _listed(turns)
        st.markdown("**Other events**")
    _listed(others)
    if checkpoints:
        with st.expander(f"{len(checkpoints):,} checkpoint{'s' if len(checkpoints) > 1 else ''}"):
            _listed(checkpoints)
    log.show(run)


TURNED = ("knob", "refused")  # kinds of events: a change of a knob, and one that could not be made
Told = list[dict[str, Any]]


def grouped(events: Iterable[Event], knobs: Iterable[Knob]) -> tuple[Told, Told, Told]:
    """Changes of knobs, other events and checkpoints, each the newest first and with its detail in words."""
    knobs, verdicts = list(knobs), dict[str, str]()
    turns, others, checkpoints = Told(), Told(), Told()
    for event in events:
        if event.kind == doctor.EVENT and event.payload["holds"]:
            verdicts[event.payload["rule"]] = event.payload["verdict"]
        group = turns if event.kind in TURNED else checkpoints if event.kind == "checkpoint" else others
        group.insert(0, {"time": datetime.fromtimestamp(event.time), "step": event.step, "event": event.kind,
                         "detail": _detail(event, knobs, verdicts)})
    return turns, others, checkpoints


def _listed(rows: Told) -> None:
    from pandas import DataFrame  # a third of a second, which the first page of a server need not wait for

    st.dataframe(DataFrame(rows), hide_index=True, height=min(420, 38 + 35 * len(rows)),
                 column_config={"time": st.column_config.DatetimeColumn(format="HH:mm:ss")})


def _detail(event: Event, knobs: Iterable[Knob], verdicts: Mapping[str, str]) -> str:
    """An event's detail in words; `verdicts` are the doctor's until then, by their rules."""
    if event.kind == doctor.EVENT and not event.payload["holds"]:
        return f"No longer: {verdicts.get(event.payload['rule'], event.payload['rule'])}"
    if event.kind == "checkpoint" and isinstance(seconds := event.payload.get("seconds"), int | float):
        return f"written in {duration(seconds)}"
    if event.payload.get("text"):
        return worded(event.payload["text"], knobs)
    return ", ".join(f"{key} {value}" for key, value in event.payload.items() if value != "")


def _data(run: RunRow, feed: Feed, step: int) -> None:
    if not feed.steps:
        st.caption("The first step has not been written yet.")
        return
    from pandas import DataFrame

    recent = lab().store.last_steps(run.id, step, RECENT)  # the feed of a long run has thinned rows
    counters = ("tokens",) if any(step.tokens for step in feed.steps) else ("env_steps",) if feed.walks else ()
    frame = DataFrame([{"step": step.step, **{name: getattr(step, name) for name in counters},
                        "seconds": step.seconds, **step.metrics} for step in recent])
    three = st.column_config.NumberColumn(format="%.3g")
    st.dataframe(frame, hide_index=True, height=380, column_config={
        name: three for name in frame.columns if not (frame[name].dropna() % 1 == 0).all()})
    st.caption(f"The last {len(recent):,} rows up to step {step:,} of {feed.last_step:,}, with three significant "
               "digits; metrics.csv under Export has all, exactly as logged.")


TABS: Tabs = {
    "Equation": (equation.show, lambda run: not run.spec.kind_row.elsewhere), "Events": (_events, lambda run: True),
    "Data": (_data, lambda run: True), "Export": (lambda run, feed, step: export.show(run, feed), lambda run: True),
}
