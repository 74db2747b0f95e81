"""Parallel coordinates of a sweep: a line for each run through its knobs and its results. A range that is chosen on an
axis chooses the runs that the table below shows."""

from __future__ import annotations

import html
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from app import naming, theme
from app.compare.place import Place, go
from app.compare.sweep.large.standing import ends, head, name, value_words
from app.components.parallel_chart import parallel_chart
from app.scale import around
from labcore.analysis.compare.ranking import LARGE, Axis, Standing, Values
from labcore.catalog.metric import Metric
from labcore.runs.store.rows import RunRow
from labcore.runs.titles import title

BEST = 3  # settings that are named
RESULTS = ("kl", "seconds")  # beside the metric, where runs differ in them
LONGEST = 20  # letters of an axis' title
TIME = "Time, s"


def brushed(sweep_id: str) -> Collection[str] | None:
    """The runs that are chosen on the axes; None where all are."""
    found: Collection[str] | None = st.session_state.get(f"compare:brushed:{sweep_id}")
    return found


def show(place: Place, now: Standing) -> None:
    """The chart, the best settings by their names, and the actions on the chosen runs. Nothing for one knob."""
    runs = [run for run in now.rows if run.state == "finished" and run.id in now.values]
    if len(now.axes) < 2 or len(runs) < 2:
        return
    results = {key: column for key in RESULTS if key != now.metric.key and (column := _results(key, runs))}
    head("Knobs and results", "one line per finished run; drag along an axis to select runs, click the axis to clear "
                              "the selection")
    generation = st.session_state.setdefault(f"compare:brush:{place.sweep}", 0)

    def chosen(ids: tuple[str, ...] | None) -> None:
        st.session_state[f"compare:brushed:{place.sweep}"] = ids

    axes, lines = drawn(now, runs, results)
    parallel_chart(axes, lines, f"parallel:{place.sweep}:{generation}", on_chosen=chosen,
                   alt=html.escape(f"{now.metric.label} by all knobs. {best_words(now)}"))
    _below(place, now, len(runs))


def _below(place: Place, now: Standing, many: int) -> None:
    """The best settings; of a choice how many runs it has, their curves, and the way back to all."""
    there = brushed(place.sweep)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        said = f"<b>{len(there):,} of {many:,} runs chosen.</b> " if there is not None else ""
        st.html(f'<div class="rl-status">{said}{html.escape(best_words(now))}</div>', width="stretch")
        if there is None:
            return
        st.button("Curves of these runs", icon=":material/show_chart:", key="parallel:curves",
                  disabled=not 0 < len(there) <= LARGE,
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
    parts = [f"{name(now, setting)} ({theme.metric_text(now.metric, setting.mean.mean, exact=True)})"
             for setting in best if setting.mean]
    return f"Best: {'; '.join(parts)}."


def _results(key: str, runs: Sequence[RunRow]) -> Values:
    """A further result of each run; nothing where a run has none, or all have the same."""
    values = {run.id: run.seconds for run in runs} if key == "seconds" else ends().values(runs, key)
    whole = len(values) == len(runs) and len({round(value, 9) for value in values.values()}) > 1
    return values if whole else {}


def drawn(now: Standing, runs: Sequence[RunRow],
          results: Mapping[str, Values]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(axes, lines) for the browser: the knobs, the further results, and the metric, which colours the lines."""
    columns = [*(_knob(axis, runs) for axis in now.axes),
               *(_result(TIME, column, runs) if key == "seconds" else
                 _measured(naming.metric(key, [run.spec for run in runs]), column, runs)
                 for key, column in results.items()),
               _measured(now.metric, now.values, runs)]
    ranks = columns[-1].places if now.metric.better != "lower" else [1 - place for place in columns[-1].places]
    lines = [{"id": run.id, "at": [round(column.places[row], 4) for column in columns], "rank": round(ranks[row], 3),
              "text": html.escape(f"{title(run)}: {theme.metric_text(now.metric, now.values[run.id], exact=True)}")}
             for row, run in enumerate(runs)]
    return [{"label": column.label, "ticks": column.ticks} for column in columns], lines


@dataclass(frozen=True)
class Column:
    """An axis: where each run lies on it, from 0 to 1."""

    label: str
    ticks: list[tuple[float, str]]
    places: list[float]


def _knob(axis: Axis, runs: Sequence[RunRow]) -> Column:
    """An axis of the sweep: numbers where they are, by factors where the knob's scale is so; words by their order."""
    knob, there = axis.knob, [value for value in axis.values if value is not None]
    numeric = knob is not None and knob.type in (int, float) and len(there) == len(axis.values)
    log = numeric and knob is not None and knob.scale == "log" and all(float(value) > 0 for value in there)

    def number(value: Any) -> float:
        return math.log10(value) if log else float(value) if numeric else float(axis.values.index(value))

    scale = around(min(map(number, axis.values)), max(map(number, axis.values)), 0.03)
    name = axis.title if knob is None or len(axis.title) <= LONGEST else knob.name
    return Column(html.escape(name), [(round(scale.share(number(value)), 4), html.escape(value_words(axis, value)))
                                      for value in _apart(axis.values)],
                  [scale.share(number(axis.of(run))) for run in runs])


def _apart(values: Sequence[Any], most: int = 12) -> Sequence[Any]:
    """As many of the values as can be labelled without overlaps."""
    return values[::-(-len(values) // most)]


def _measured(metric: Metric, column: Values, runs: Sequence[RunRow]) -> Column:
    """The axis of a metric."""
    return _result(metric.page_axis, {run: metric.on_page(value) for run, value in column.items()}, runs)


def _result(label: str, column: Values, runs: Sequence[RunRow]) -> Column:
    values = [column[run.id] for run in runs]
    scale = around(min(values), max(values), 0.03)
    return Column(html.escape(label if len(label) <= LONGEST else label.partition(",")[0]),
                  [(round(scale.share(tick), 4), f"{tick:g}".replace("-", "−")) for tick in scale.ticks],
                  [scale.share(value) for value in values])
