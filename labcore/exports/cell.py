"""Show a run as the output of a notebook's cell: its state, its charts, and completions of its newest step.

The HTML has no scripts, so it needs no server, and completions are always shown as plain text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from labcore.runs import titles
from labcore.runs.store.rows import RunRow
from labcore.runs.store.store import Store

CHARTS = 3
COMPLETIONS = 8
_INCHES = (3.3, 2.1)


def html(store: Store, row: RunRow, completions: Iterable[Mapping[str, Any]]) -> str:
    """The output of a cell. `completions` have the keys prompt, completion and, where it is known, reward."""
    said = f"{row.state}, step {row.step:,} of {row.spec.steps:,}" + (f": {row.message}" if row.message else "")
    return (f"<p><b>{escape(titles.title(row))}</b> {escape(titles.with_titles(said, lambda: store))}</p>"
            f'<div style="display:flex;flex-wrap:wrap;gap:8px">{_charts(store, row) if row.step else ""}</div>'
            f"{_table(list(completions)[:COMPLETIONS])}")


def _charts(store: Store, row: RunRow) -> str:
    from labcore.exports import figures  # imports matplotlib

    charts, _ = figures.charts_of(store, [row.id])
    return "".join(f'<figure style="margin:0;background:#fff">{figures.svg(chart, _INCHES)}</figure>'
                   for chart in charts[:CHARTS])


def _table(completions: list[Mapping[str, Any]]) -> str:
    if not completions:
        return ""
    rows = "".join(f"<tr>{''.join(f'<td><code>{escape(_cell(each.get(key)))}</code></td>' for key in _COLUMNS)}</tr>"
                   for each in completions)
    return f"<table><tr>{''.join(f'<th>{key}</th>' for key in _COLUMNS)}</tr>{rows}</table>"


_COLUMNS = ("prompt", "completion", "reward")


def _cell(value: object) -> str:
    return "" if value is None else f"{value:z.3g}" if isinstance(value, float) else str(value)
