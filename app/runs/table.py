"""The table of runs: entries as a data frame, and how its columns are shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd
import streamlit as st

from app.runs import state
from app.status import STATES
from app.theme import number
from labcore.catalog.metrics import METRICS
from labcore.runs.steering import shown
from labcore.shelf.entries import IMPORTED, Entry
from labcore.shelf.fields import Group

ROW, HEAD = 35, 34  # pixels
TALLEST = 14  # rows that are seen at once
TINT = "2E"  # how much of a state's colour is behind its name
NAMES = {state: name for state, (_, name, _) in STATES.items()} | {IMPORTED: "Imported"}
COLOURS = {state: colour for state, (colour, _, _) in STATES.items()} | {IMPORTED: "#CC79A7"}


def frame(entries: Sequence[Entry], deleted: bool = False) -> pd.DataFrame:
    """One row per entry, in order. Columns without any value are left out."""
    digests = [entry.digest for entry in entries]
    when = [entry.deleted if deleted else entry.created for entry in entries]
    columns = {
        "star": ["★" if entry.star else "" for entry in entries],
        "state": [[NAMES[entry.state]] for entry in entries],
        "run": [entry.id for entry in entries],
        "open": ["" if deleted else ":material/open_in_full:" for _ in entries],
        "algorithm": [entry.algorithm for entry in entries],
        "settings": [entry.settings for entry in entries],
        "task": [entry.task for entry in entries],
        "seed": pd.array([entry.seed for entry in entries], "Int64"),
        "curve": [digest.curve for digest in digests],
        "metric": [METRICS[digest.metric].label if digest.metric else "" for digest in digests],
        "last": pd.array([digest.last for digest in digests], "Float64"),
        "best": pd.array([digest.best for digest in digests], "Float64"),
        "tags": [list(entry.tags) for entry in entries],
        "step": [entry.step for entry in entries],
        "steps": pd.array([entry.steps for entry in entries], "Int64"),
        "when": pd.to_datetime(when, unit="s", utc=True),
        "duration": pd.array([entry.seconds for entry in entries], "Float64"),
        "size": pd.array([digest.size for digest in digests], "Int64"),
        "note": [" ".join(entry.note.split()) for entry in entries],
        "model": [entry.model for entry in entries],
    }
    empty = {key for key in ("open", "settings", "tags", "note", "model") if not any(columns[key])}
    return pd.DataFrame({key: values for key, values in columns.items() if key not in empty})


def config(entries: Sequence[Entry], key: str, deleted: bool, opened: Callable[[], None]) -> dict:
    """How each column is shown."""
    column = st.column_config
    tags = sorted({tag for entry in entries for tag in entry.tags})
    return {
        "star": column.TextColumn("★", width=34, help="Starred: no clean-up deletes it"),
        "state": column.MultiselectColumn("State", width=98, options=list(NAMES.values()),
                                          color=[COLOURS[state] + TINT for state in NAMES]),
        "run": column.TextColumn("Run", width=150),
        "open": column.ButtonColumn("", width=40, type="tertiary", key=f"{key}:open", on_click=opened),
        "algorithm": column.TextColumn("Algorithm", width=98),
        "settings": column.TextColumn("Settings", width=112, help="The algorithm's knobs that are not at their "
                                      "defaults"),
        "task": column.TextColumn("Task", width=92),
        "seed": column.NumberColumn("Seed", width=50),
        "curve": column.LineChartColumn("Curve", width=120, help="The metric over the steps; each curve has a scale "
                                        "of its own"),
        "metric": column.TextColumn("Metric", width=92, help="What a run is judged by: the metric of its first chart"),
        "last": column.NumberColumn("Last", width=66, format="%.4g", help="The metric's newest value"),
        "best": column.NumberColumn("Best", width=66, format="%.4g", help="The metric's best value in one step: the "
                                    "lowest where lower is better"),
        "tags": column.MultiselectColumn("Tags", width=130, options=tags, color="auto"),
        "step": column.NumberColumn("Steps", width=58, help="Steps done"),
        "steps": column.NumberColumn("of", width=54, help="Steps to do in all"),
        "when": column.DatetimeColumn("Deleted" if deleted else "Started", width=108, format="distance"),
        "duration": column.NumberColumn("Time", width=70, format="%.0f s", help="Active time, pauses left out"),
        "size": column.NumberColumn("Size", width=74, format="bytes", help="Its files on the disk"),
        "note": column.TextColumn("Note", width=240),
        "model": column.TextColumn("Model", width=76),
    }


def table(entries: Sequence[Entry], deleted: bool = False) -> None:
    """Draw the entries as a table whose rows can be selected.

    Its key holds their order, so that a selection is never taken for other rows than it was made on.
    """
    ids = [entry.id for entry in entries]
    key = f"runs:table:{hash((deleted, st.session_state.get(state.GENERATION, 0), *ids))}"
    chosen = set(state.picked())

    def selected() -> None:
        rows = st.session_state[key].selection.rows
        others = [run_id for run_id in state.picked() if run_id not in ids]
        state.pick([*others, *(ids[row] for row in rows if row < len(ids))])

    def opened() -> None:
        st.session_state["runs:open"] = ids[st.session_state[f"{key}:open"].row]

    st.dataframe(frame(entries, deleted), key=key, hide_index=True, on_select=selected, selection_mode="multi-row",
                 selection_default={"selection": {"rows": [row for row, run_id in enumerate(ids) if run_id in chosen]}},
                 row_height=ROW, height=HEAD + ROW * min(len(entries), TALLEST) + 2, placeholder="–",
                 column_config=config(entries, key, deleted, opened), alt="The runs, one in each row")


def group_title(name: str, group: Group) -> str:
    """What a group is and how it fares, for its header: the means over its runs, by metric."""
    of = group.value
    if of is None:
        told = f"without {name}"
    elif isinstance(of, bool):
        told = name if of else f"not {name}"
    else:
        told = f"{name} = {', '.join(of) if isinstance(of, tuple) else shown(of)}"
    parts = [told, f"{len(group.entries)} run{'s' if len(group.entries) > 1 else ''}"]
    for key, (count, last, best) in group.means.items():
        metric = METRICS[key]
        mean = f"{metric.label.lower()}: mean of last {number(last, metric.digits)}"
        if best is not None:
            mean += f", of best {number(best, metric.digits)}"
        parts.append(mean + (f" ({count} run{'s' if count > 1 else ''})" if len(group.means) > 1 else ""))
    return " · ".join(parts)
