"""The twin of a run: the watched run that was started from its hand-over script, and vice versa."""

from __future__ import annotations

import streamlit as st

from app.lab import lab
from app.session import RECENT
from app.tokens import literal
from labcore.catalog.kinds import WATCH
from labcore.catalog.watch import TWIN
from labcore.runs.store.rows import RunRow
from labcore.runs.titles import title

TOKENS = "tokens"


def twins(run: RunRow) -> list[RunRow]:
    """For a watched run, return the lab's run whose script started it; for a lab's run, its newest watched runs."""
    if run.spec.kind_row.elsewhere:
        parent = lab().find(str(run.spec.knobs.get(TWIN, "")))
        return [parent] if parent else []
    there = lab().store.runs(limit=RECENT, kind=WATCH.key, begun=True)
    return [each for each in there if each.spec.knobs.get(TWIN) == run.id]


def link(run: RunRow) -> None:
    """Show a link that compares a run with its twins at equal tokens; nothing without a twin."""
    found = twins(run)
    if not found or not run.step:
        return
    names = " and ".join(literal(title(each)) for each in found[:2])
    runs = ",".join([run.id, *(each.id for each in found)])
    st.page_link("../pages/compare.py", label=f"Compare with its twin {names} at equal tokens",
                 icon=":material/balance:", query_params={"runs": runs, "by": TOKENS, "x": TOKENS})
