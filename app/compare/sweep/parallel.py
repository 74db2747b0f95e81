"""Parallel coordinates of a sweep: a line for each run through its knobs and its results. A range that is chosen on an
axis chooses the runs that the table below shows."""

from __future__ import annotations

import html
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import streamlit as st

from app import theme
from app.compare.place import Place, go
from app.compare.sweep.large.standing import ends, head, name, value_words
from app.components.figure_chart import figure_chart
from labcore.analysis.compare.ranking import LARGE, Axis, Standing, Values
from labcore.catalog.metric import Metric
from labcore.catalog.metrics import METRICS
from labcore.runs.store.rows import RunRow

BEST = 3  # settings that are named
RESULTS = ("kl", "seconds")  # beside the metric, where runs differ in them
LONGEST = 16  # letters of an axis' title
WIDTH = 130  # pixels that an axis needs


def brushed(sweep_id: str) -> Collection[str]:
    """The runs that are chosen on the axes; none where all are."""
    found: Collection[str] = st.session_state.get(f"compare:brushed:{sweep_id}", ())
    return found


def show(place: Place, now: Standing, kind: str) -> None:
    """The chart, the best settings by their names, and what can be done with the chosen runs. Nothing for one knob."""
    runs = [run for run in now.rows if run.state == "finished" and run.id in now.values]
    if len(now.axes) < 2 or len(runs) < 2:
        return
    results = {key: column for key in RESULTS if key != now.metric.key and (column := _results(key, runs))}
    head("Knobs and results", "a line for each finished run; drag along an axis to choose runs, click it to let go")
    generation = st.session_state.setdefault(f"compare:brush:{place.sweep}", 0)
    key = f"parallel:{place.sweep}:{generation}"

    def chosen() -> None:
        ids = st.session_state[key].brushed
        st.session_state[f"compare:brushed:{place.sweep}"] = tuple(ids or ())

    figure_chart(figure(now, runs, results, kind), key, title=f"{now.metric.label} by all knobs",
                 caption="One line per run", least=WIDTH * (len(now.axes) + len(results) + 1),
                 alt=best_words(now), ids=[run.id for run in runs], on_brush=chosen)
    _below(place, now, len(runs))


def _below(place: Place, now: Standing, many: int) -> None:
    """The best settings; of a choice how many runs it has, their curves, and the way back to all."""
    there = brushed(place.sweep)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        said = f"<b>{len(there):,} of {many:,} runs chosen.</b> " if there else ""
        st.html(f'<div class="rl-status">{said}{html.escape(best_words(now))}</div>', width="stretch")
        if not there:
            return
        st.button("Their curves", icon=":material/show_chart:", key="parallel:curves", disabled=len(there) > LARGE,
                  help=f"Up to {LARGE} runs" if len(there) > LARGE else "Compare these runs",
                  on_click=lambda: go(Place(runs=tuple(there), metric=now.metric.key)))
        st.button("All runs", icon=":material/close:", key="parallel:all", on_click=_let_go, args=(place.sweep,))


def _let_go(sweep_id: str) -> None:
    st.session_state.pop(f"compare:brushed:{sweep_id}", None)
    st.session_state[f"compare:brush:{sweep_id}"] += 1  # another chart, without ranges


def best_words(now: Standing) -> str:
    """The best settings by name, each with its number; empty where no direction is better."""
    best = [setting for setting in now.ranked if setting.whole][:BEST]
    if not now.metric.better or not best:
        return ""
    parts = [f"{name(now, setting)} ({theme.number(setting.mean.mean, now.metric.digits)})"
             for setting in best if setting.mean]
    return f"Best: {'; '.join(parts)}."


def _results(key: str, runs: Sequence[RunRow]) -> Values:
    """A further result of each run; nothing where a run has none, or all have the same."""
    values = {run.id: run.seconds for run in runs} if key == "seconds" else ends().values(runs, key)
    whole = len(values) == len(runs) and len({round(value, 9) for value in values.values()}) > 1
    return values if whole else {}


def figure(now: Standing, runs: Sequence[RunRow], results: Mapping[str, Values], kind: str) -> dict[str, Any]:
    """Data and layout: the knobs, the further results, and the metric, which colours the lines. The best are the most
    distinct on either ground."""
    titled = {"seconds": "Time, s", **{key: METRICS[key].axis for key in results if key in METRICS}}
    dimensions = [*(_knob(axis, runs) for axis in now.axes),
                  *(_result(titled[key], column, runs) for key, column in results.items()),
                  _result(now.metric.axis, now.values, runs, now.metric)]
    layout = theme.layout(kind, 330)
    ink = layout["font"]["color"]
    colour = [now.values[run.id] for run in runs]
    dark_is_best = (kind == "light") == (now.metric.better != "lower")
    trace = {"type": "parcoords", "dimensions": dimensions, "labelangle": 0, "labelside": "top",
             "labelfont": {"size": 13, "color": ink}, "tickfont": {"size": 12, "color": ink},
             "rangefont": {"size": 12, "color": "rgba(0,0,0,0)"},
             "line": {"color": colour, "colorscale": "Viridis", "reversescale": dark_is_best},
             "unselected": {"line": {"color": "#8A939D", "opacity": 0.12}}}
    return {"data": [trace], "layout": {key: layout[key] for key in layout if key not in ("xaxis", "yaxis")} | {
        "margin": {"l": 56, "r": 56, "t": 44, "b": 14}}}


def _knob(axis: Axis, runs: Sequence[RunRow]) -> dict[str, Any]:
    """An axis of the sweep: numbers where they are, by factors where the knob's scale is so; words by their order."""
    knob, there = axis.knob, [value for value in axis.values if value is not None]
    numeric = knob is not None and knob.type in (int, float) and len(there) == len(axis.values)
    log = numeric and knob is not None and knob.scale == "log" and all(float(value) > 0 for value in there)

    def place(value: Any) -> float:
        return math.log10(value) if log else float(value) if numeric else float(axis.values.index(value))

    title = axis.title if knob is None or len(axis.title) <= LONGEST else knob.name
    return {"label": html.escape(title), "values": [place(axis.of(run)) for run in runs],
            "tickvals": [place(value) for value in axis.values],
            "ticktext": [html.escape(value_words(axis, value)) for value in axis.values]}


def _result(title: str, column: Values, runs: Sequence[RunRow], metric: Metric | None = None) -> dict[str, Any]:
    ends = {"range": [0, 1]} if metric and metric.scale == "rate" else {}
    short = title if len(title) <= LONGEST else title.partition(",")[0]
    return {"label": html.escape(short), "values": [column[run.id] for run in runs], **ends}
