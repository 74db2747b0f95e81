"""Charts of the trainer's own metrics, if there are many: folded, with a search by name."""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st

from app import link, resend
from app.components.live_chart import live_chart
from app.lab import active
from app.link import Param
from app.session import SMOOTH, axis
from app.tokens import literal
from app.training.chart_data import payload
from app.training.feed import FEW, HEIGHTS, Feed
from app.widget_state import widget_state
from labcore.catalog.metrics import OWN
from labcore.runs.store.rows import RunRow

FIND = Param("metric", "")
SHOWN = 12  # charts that are drawn at once
_CHART = "own_chart"


def names(logged: Iterable[str]) -> list[str]:
    """Return the metrics without a name in the lab, sorted by name."""
    return sorted(key for key in logged if key.startswith(OWN))


def matching(keys: Iterable[str], typed: str) -> list[str]:
    """Return the metrics whose names contain all typed words.

    >>> matching(["own/actor/lr", "own/actor/grad", "own/time"], "Actor gr"), matching(["own/time"], "")
    (['own/actor/grad'], ['own/time'])
    """
    words = typed.lower().split()
    return [key for key in keys if all(word in key.removeprefix(OWN).lower() for word in words)]


def show(run: RunRow, feed: Feed, at: int | None) -> None:
    """Show the fold if there are more of these metrics than the other charts include."""
    keys = names(feed.logged)
    if len(keys) <= FEW:
        return
    of = f" of {literal(run.spec.tool)}, under its own names" if run.spec.tool else ""
    fold = st.expander(f"{len(keys):,} more metrics{of}", icon=":material/monitoring:",
                       expanded=bool(link.get(FIND)), key="own_metrics", on_change="rerun")
    if fold.open:
        with fold:
            _found(run, feed, keys, at)


def _found(run: RunRow, feed: Feed, keys: list[str], at: int | None) -> None:
    typed = widget_state("own:find", link.get(FIND))
    st.text_input("Find metrics", typed.value, key=typed.key, icon=":material/search:", label_visibility="collapsed",
                  placeholder="Find metrics by name, such as actor grad", width=360,
                  on_change=lambda: link.put(FIND, typed.taken().strip()))
    found = matching(keys, link.get(FIND))
    if not found:
        st.caption("No match")
        return
    if len(found) > SHOWN:
        st.caption(f"The first {SHOWN} of {len(found):,} metrics are shown. Type part of a name to find others.")
    _draw(run, feed, tuple(found[:SHOWN]), at)


def _draw(run: RunRow, feed: Feed, chosen: tuple[str, ...], at: int | None) -> None:
    """Draw these metrics. Their rows are sent separately, and only while the charts are visible."""
    kept = st.session_state.get("own:feed")
    if not isinstance(kept, Feed) or kept.steps is not feed.steps or kept.chosen != chosen:
        kept = Feed(feed.spec, feed.steps, feed.events, logged=feed.logged, own=feed.own, chosen=chosen)
        st.session_state["own:feed"] = kept
        resend.mounted(_CHART)
    data = payload({run.id: kept}, full=resend.full(_CHART), x=axis(feed.axes()), smooth=link.get(SMOOTH),
                   ended=not active(run), at=at, named={run.id: run})
    data["panels"] = [panel | {"large": True, "height": HEIGHTS[1], "called": ""} for panel in data["panels"]]
    live_chart(data | {"key": f"{run.id}:{hash(chosen)}"}, key=_CHART,
               on_resync=lambda: resend.missed(_CHART), on_marker=_no_fork)


def _no_fork(run_id: str, event: int) -> None:
    """Do nothing: a watched run cannot be forked from a marker."""
