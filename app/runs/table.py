"""The table of runs: entries as a data frame, and how its columns are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from app import naming
from app.lab import titled
from app.runs import state
from app.status import PENDING, STATES, duration, volume
from app.theme import metric_text
from labcore.catalog.amounts import significant
from labcore.catalog.metric import Metric
from labcore.catalog.metrics import METRICS
from labcore.runs.lists.entries import IMPORTED, Entry, Group

ROW, HEAD = 35, 34  # pixels
TALLEST = 14.5  # rows that are seen at once: the half one says that there are more below
PAGE = 500  # rows that a browser is given at once
TINT = "2E"  # how much of a state's colour is behind its name
NAMES = {state: name for state, (_, name, _) in STATES.items()} | PENDING | {IMPORTED: "Imported"}
COLOURS = {state: colour for state, (colour, _, _) in STATES.items()} | dict.fromkeys(PENDING, "#E69F00") | {
    IMPORTED: "#CC79A7"}

LETTER, PADDING, PILL = 6.0, 18, 14  # pixels: of a letter on average, and what a cell and a pill add to their text
ROOM, LAST = 1206, "duration"  # pixels beside the boxes in a window of 1280, where the columns up to this one are seen
MB = 1e6
FRAME = 32  # pixels less within the frame of a group
# The least and the most pixels of a column that is as wide as its texts; of the others all there is.
TEXTS = {"state": (84, 98), "run": (110, 184), "algorithm": (84, 170), "task": (70, 124), "seed": (46, 76),
         "metric": (66, 142), "last": (58, 84), "best": (58, 84), "step": (50, 72), "steps": (40, 72),
         "duration": (52, 92), "tags": (64, 150), "model": (64, 120)}
FIXED = {"star": 30, "open": 36, "curve": 80, "when": 108, "size": 68, "note": 240}
KEPT = {"algorithm": 136, "task": 74, "metric": 66, "run": 110}  # what is left of those that give room if need be


def frame(entries: Sequence[Entry], deleted: bool = False) -> pd.DataFrame:
    """Make a data frame with a row per entry, in order. Columns without any value are left out."""
    summaries = [entry.summary for entry in entries]
    models = {name: naming.model(name) for name in {entry.model for entry in entries}}  # lists have thousands of a few
    when = [entry.deleted if deleted else entry.created for entry in entries]
    columns = {
        "run": [entry.title for entry in entries],
        "star": ["★" if entry.star else "" for entry in entries],
        "state": [[NAMES[entry.pending or entry.state]] for entry in entries],
        "open": ["" if deleted else ":material/open_in_full:" for _ in entries],
        "algorithm": [" ".join(dict.fromkeys(filter(None, (entry.tool, entry.algorithm, entry.settings))))
                      for entry in entries],
        "task": [entry.task for entry in entries],
        "seed": pd.array([entry.seed for entry in entries], "Int64"),
        "curve": [summary.curve for summary in summaries],
        "metric": [entry.metric.label if entry.metric else "" for entry in entries],
        "last": pd.array([_rounded(summary.last) for summary in summaries], "Float64"),
        "best": pd.array([_rounded(summary.best) for summary in summaries], "Float64"),
        "step": [entry.step for entry in entries],
        "steps": pd.array([entry.steps for entry in entries], "Int64"),
        "when": pd.to_datetime(when, unit="s", utc=True),
        "duration": pd.array([entry.seconds and round(entry.seconds, 1 if entry.seconds < 10 else None)
                              for entry in entries], "Float64"),
        "tags": [list(entry.tags) for entry in entries],
        "size": pd.array([summary.size and summary.size / MB for summary in summaries], "Float64"),
        "note": [" ".join(entry.note.split()) for entry in entries],
        "model": [models[entry.model] for entry in entries],
    }
    empty = {key for key in ("star", "open", "task", "tags", "note", "model") if not any(columns[key])}
    return pd.DataFrame({key: values for key, values in columns.items() if key not in empty})


def _value(metric: Metric | None, value: float) -> str:
    return metric_text(metric, value, exact=True) if metric and metric.share else significant(value)


# How a table writes numbers, by column. The data frame keeps the numbers, by which a click on a header sorts.
WRITTEN: Mapping[str, Callable[[Metric | None, float], str]] = {
    "last": _value, "best": _value, "duration": lambda _, seconds: duration(seconds),
    "size": lambda _, megabytes: volume(MB * megabytes)}


def written(found: pd.DataFrame, entries: Sequence[Entry]) -> Any:
    """The data frame as a pandas Styler that writes each number in the format of all pages."""
    styler, there = found.style, [key for key in WRITTEN if key in found]
    for metric in dict.fromkeys(entry.metric for entry in entries):
        rows = [place for place, entry in enumerate(entries) if entry.metric == metric]
        styler = styler.format({key: partial(WRITTEN[key], metric) for key in there}, subset=(rows, there), na_rep="–")
    return styler


def _rounded(value: float | None) -> float | None:
    """Three significant digits.

    >>> _rounded(0.98437), _rounded(-1234.5), _rounded(None)
    (0.984, -1230.0, None)
    """
    return None if value is None else float(f"{value:.3g}")


def widths(found: pd.DataFrame, framed: bool = False) -> dict[str, int]:
    """Pixels of each column: as wide as its texts, but so that those up to LAST are seen without scrolling."""
    wide = {key: min(TEXTS[key][1], max([TEXTS[key][0], *map(_pixels, _cells(found, key))])) if key in TEXTS else
            FIXED[key] for key in found}
    first = list(found)[:list(found).index(LAST) + 1]
    for key in [key for key in KEPT if key in wide]:
        beyond = sum(wide[each] for each in first) - ROOM + FRAME * framed
        wide[key] -= max(0, min(beyond, wide[key] - KEPT[key]))
    return wide


def _cells(found: pd.DataFrame, key: str) -> Sequence[object]:
    """The contents of a column as they are written; of a metric's values, whose texts are short, as they are."""
    return [duration(value) for value in found[key].dropna()] if key == LAST else [*found[key]]


def _pixels(value: object) -> int:
    """Return the width that a cell needs."""
    if isinstance(value, list):
        return round(PADDING + sum(LETTER * len(text) + PILL for text in value))
    text = f"{value:.4g}" if isinstance(value, float) else "" if value is pd.NA else str(value)
    return round(PADDING + LETTER * len(text))


def config(entries: Sequence[Entry], pixels: Mapping[str, int], key: str, deleted: bool,
           opened: Callable[[], None]) -> dict[str, Any]:
    """Return the configuration of each column; `pixels` as `widths` gives them."""
    column, wide = st.column_config, pixels.get
    tags = sorted({tag for entry in entries for tag in entry.tags})
    return {
        "star": column.TextColumn("★", width=wide("star"), help="Starred: no clean-up deletes it"),
        "state": column.MultiselectColumn("State", width=wide("state"), options=list(NAMES.values()),
                                          color=[COLOURS[state] + TINT for state in NAMES]),
        "run": column.TextColumn("Run", width=wide("run")),
        "open": column.ButtonColumn("", width=wide("open"), type="tertiary", key=f"{key}:open", on_click=opened),
        "algorithm": column.TextColumn("Algorithm", width=wide("algorithm"), help="With the knobs that are not at "
                                       "their defaults"),
        "task": column.TextColumn("Task", width=wide("task")),
        "seed": column.NumberColumn("Seed", width=wide("seed"), format="%d"),
        "curve": column.LineChartColumn("Curve", width=wide("curve"), help="The metric over the steps; each curve has "
                                        "its own scale"),
        "metric": column.TextColumn("Metric", width=wide("metric"), help="The metric of the run's first chart"),
        "last": column.NumberColumn("Last", width=wide("last"), help="The metric's newest value"),
        "best": column.NumberColumn("Best", width=wide("best"), help="The metric's best value in one step: the "
                                    "lowest where lower is better"),
        "step": column.NumberColumn("Steps", width=wide("step"), format="%d", help="Steps done"),
        "steps": column.NumberColumn("of", width=wide("steps"), format="%d", help="Total steps"),
        "when": column.DatetimeColumn("Deleted" if deleted else "Started", width=wide("when"), format="distance"),
        "duration": column.NumberColumn("Time", width=wide("duration"), help="Active time, pauses left out"),
        "tags": column.MultiselectColumn("Tags", width=wide("tags"), options=tags, color="auto"),
        "size": column.NumberColumn("Size", width=wide("size"), help="Size of its files on the disk"),
        "note": column.TextColumn("Note", width=wide("note")),
        "model": column.TextColumn("Model", width=wide("model")),
    }


def table(entries: Sequence[Entry], deleted: bool = False, pixels: Mapping[str, int] | None = None,
          name: str = "") -> None:
    """Draw the entries as a table whose rows can be selected, in pages where they are many.

    `pixels` are its columns', else as wide as need be; `name` tells it from other tables of the page.
    """
    first = _page(len(entries), name)
    _rows(entries[first:first + PAGE], deleted, pixels)


def _page(count: int, name: str) -> int:
    """The place of the first of `count` entries that is shown; where they do not fit on one page, the choice of it."""
    pages = -(-count // PAGE)
    if pages <= 1:
        return 0
    with st.container(horizontal=True, vertical_alignment="center", key=f"runs:pager:{name}"):
        first = PAGE * (st.pagination(pages, key=f"runs:page:{name}:{pages}") - 1)
        st.caption(f"{first + 1:,} to {min(first + PAGE, count):,} of {count:,} runs; search and order apply to "
                   "all of them")
    return first


def _rows(entries: Sequence[Entry], deleted: bool, pixels: Mapping[str, int] | None) -> None:
    """Draw one page of a table. Its key depends on the order of the rows, so that a selection never applies to other
    rows."""
    ids = [entry.id for entry in entries]
    key = f"runs:table:{hash((deleted, st.session_state.get(state.GENERATION, 0), *ids))}"
    chosen = set(state.picked())

    def selected() -> None:
        rows = st.session_state[key].selection.rows
        others = [run_id for run_id in state.picked() if run_id not in ids]
        state.pick([*others, *(ids[row] for row in rows if row < len(ids))])

    def opened() -> None:
        st.session_state["runs:open"] = ids[st.session_state[f"{key}:open"].row]

    found = frame(entries, deleted)
    st.dataframe(written(found, entries), key=key, hide_index=True, on_select=selected, selection_mode="multi-row",
                 selection_default={"selection": {"rows": [row for row, run_id in enumerate(ids) if run_id in chosen]}},
                 row_height=ROW, height=tall(len(entries)), placeholder="–",
                 column_config=config(entries, pixels or widths(found), key, deleted, opened),
                 alt="The runs, one in each row")


def tall(rows: int) -> int:
    """Pixels of a table of so many rows.

    >>> tall(14) - tall(13) == ROW, tall(15) - tall(14) == ROW // 2, tall(99) == tall(15)
    (True, True, True)
    """
    return HEAD + int(ROW * min(rows, TALLEST)) + 2


def group_title(name: str, group: Group) -> str:
    """Return the header of a group: its condition, and the means over its runs by metric."""
    of = group.value
    if of is None:
        condition = f"without {name}"
    elif isinstance(of, bool):
        condition = name if of else f"not {name}"
    else:
        condition = f"{name} = {', '.join(of) if isinstance(of, tuple) else titled(naming.written(name, of))}"
    parts = [condition, f"{len(group.entries)} run{'s' if len(group.entries) > 1 else ''}"]
    for key, (count, last, best) in group.means.items():
        called = {entry.metric for entry in group.entries if entry.metric and entry.summary.metric == key}
        metric = called.pop() if len(called) == 1 else METRICS[key]
        mean = f"{metric.inline}: mean of last {metric_text(metric, last)}"
        if best is not None:
            mean += f", of best {metric_text(metric, best)}"
        parts.append(mean + (f" ({count} run{'s' if count > 1 else ''})" if len(group.means) > 1 else ""))
    return " · ".join(parts)
