"""The view "Table": the result of each group with its cost and evidence, and the same as files."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st

from app import naming, sharing
from app.compare import export, wording
from app.compare.data import Chosen, judged, look_of
from app.lab import in_words
from labcore.analysis.compare import budget
from labcore.analysis.compare.best import Standing
from labcore.analysis.compare.table import Table, compare
from labcore.errors import LabError


def show(chosen: Chosen, stand: Standing | None, full: bool) -> None:
    """The whole view; where nothing can be judged yet, a sentence that says so."""
    going = chosen.active
    try:
        chosen, table = table_of(chosen)
    except LabError as error:
        st.info(in_words(error), icon=":material/info:")
        return
    looks = by_label(chosen, table)
    metric = chosen.metric_of(table.metric)
    unit = ", ".join(part for part in (metric.page_unit, f"{table.better} is better" if table.better else "") if part)
    st.html(wording.CSS + f'<div class="rl-status"><b>{html.escape(metric.label)}</b> '
            f'<span class="rl-muted">{html.escape(unit)} · mean over seeds [its 95 % interval]</span></div>'
            + wording.results(table, looks, stand.criterion if stand else "", going, metric))
    if len(table.rows) > 1:
        order = "below" if table.better == "lower" else "above"
        pair = ("its group", "the baseline") if table.baseline else ("the leader", "its group")
        st.caption(f"P is P(A > B): the probability that a run of {pair[0]} lies {order} one of {pair[1]}; ½ means no "
                   "difference. A beats B only if the 95 % interval of the difference of their means (Welch's) "
                   "excludes 0 and both have at least three seeds. Otherwise it is a tie.")
    st.caption(wording.measured(table.better))
    shared = budget.shared_time(chosen.stored)
    if notes := [*table.notes, *([shared] if shared else [])]:
        st.html(f'<ul class="rl-notes">{"".join(f"<li>{html.escape(note)}</li>" for note in notes)}</ul>')
    if table.config:
        st.subheader("Settings that differ", anchor=False)
        st.html(wording.settings(table, looks, [trace.spec for trace in chosen.traces if trace.spec]))


def table_of(chosen: Chosen) -> tuple[Chosen, Table]:
    """The runs with what the table needs, and the table of those that are judged and log the metric; the others are
    named in a note.

    Raises LabError where there is nothing to judge.
    """
    chosen = judged(chosen.with_metrics([chosen.metric, "memory"]))
    version = json.dumps([[trace.run, trace.state, int(trace.axes["step"].size), trace.changes, trace.notes]
                          for trace in chosen.traces], default=str)
    baseline = chosen.baseline
    pinned = baseline and any(chosen.metric in trace.metrics for trace in baseline.traces)
    return chosen, _table(version, chosen.metric, chosen.place.baseline if pinned else None, chosen)


@st.cache_resource(max_entries=32, show_spinner=False)
def _table(version: str, metric: str, baseline: str | None, _chosen: Chosen) -> Table:
    without = [trace for trace in _chosen.traces if trace.metrics and metric not in trace.metrics]
    if len(without) == len(_chosen.traces):
        raise LabError(f"None of these runs logs {metric}. Choose another metric.")
    found = compare([trace for trace in _chosen.traces if trace not in without], metric, baseline,
                    naming.setting, naming.preset)
    said = [f"{', '.join(trace.title for trace in without)}: no {metric}, left out."] if without else []
    return replace(found, notes=(*found.notes, *said))


def by_label(chosen: Chosen, table: Table) -> dict[str, Mapping[str, Any]]:
    """The table's labels -> how their groups are drawn."""
    looks = look_of(chosen)
    return {row.label: looks[chosen.place_of(row.runs[0])] for row in table.rows}


def _has_table(chosen: Chosen) -> bool:
    """Whether the runs can be put into a table; where not, the view has said why."""
    try:
        table_of(chosen)
    except LabError:
        return False
    return True


def _made(make: Callable[[Chosen], bytes], chosen: Chosen) -> bytes:
    """A file of the runs as they are at the click."""
    return make(chosen.again())


def files(chosen: Chosen) -> None:
    """The comparison as files. They stand outside of what is drawn again while runs go: a download button that is
    drawn again forgets its file."""
    table = {"Table (CSV)": ("table", ":material/table:", lambda now: export.table(table_of(now)[1], now))}
    offered = {**(table if _has_table(chosen) else {}),
               "Curves as plotted (CSV)": ("as-plotted", ":material/show_chart:", export.plotted),
               "All rows (CSV)": ("rows", ":material/database:", export.rows)}
    with st.container(horizontal=True):
        for label, (name, icon, make) in offered.items():
            st.download_button(label, partial(_made, make, chosen), key=f"compare:csv:{name}", icon=icon,
                               file_name=f"compare-{chosen.metric.replace('/', '-')}-{name}.csv", mime="text/csv",
                               on_click="ignore")
    if stored := [run.id for run in chosen.stored if run.step]:
        sharing.show(stored, "compare", ready=True)
    st.caption("As plotted: thinned, and smoothed if the chart is; each line says so. All rows: every metric of every "
               "step as logged, one number per line. While runs are running, a file holds the values at the moment of "
               "the click.")
