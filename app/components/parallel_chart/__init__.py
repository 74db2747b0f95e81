"""Parallel coordinates: a line for each run through its knobs and results. A range on an axis chooses runs.

Plotly's own need WebGL programs that are compiled from text, which the pages' content security policy forbids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from app.components.component import Component

PARALLEL = Component(Path(__file__).parent)


def parallel_chart(axes: Sequence[Mapping[str, Any]], lines: Sequence[Mapping[str, Any]], key: str, *, alt: str,
                   on_chosen: Callable[[tuple[str, ...] | None], None]) -> None:
    """Mount the chart. An axis has a `label` and `ticks` (place from 0 to 1, text); a line an `id`, its places `at` the
    axes, its `rank` from 0 to 1 (the best), and a `text`. `on_chosen` gets the ids of the lines within all ranges,
    None where no range is set."""
    def chosen() -> None:
        ids = st.session_state[key].chosen
        on_chosen(None if ids == "all" else tuple(ids))

    PARALLEL(key=key, data={"axes": list(axes), "lines": list(lines), "alt": alt}, on_chosen_change=chosen)
