"""The step that the whole page shows: tiles, charts, samples, tokens, surrogate, board and films."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app import link
from app.components.scrubber import scrubber
from app.lab import active
from app.link import Param
from app.training.feed import Feed
from labcore.runs.store.rows import RunRow

AT = Param("at", 0, link.whole())  # 0: always the newest


def chosen(feed: Feed) -> int | None:
    """The earlier step that the user looks at; None while the page shows the newest one.

    Only some steps of a long run are drawn; then it is the drawn step at or before the chosen one.
    """
    at = link.get(AT)
    if not feed.steps or not 0 < at < feed.last_step:
        return None
    return max(at - at % feed.stride, feed.steps[0].step)


def of(run: RunRow, shown: RunRow, feed: Feed) -> int | None:
    """The earlier step of `shown`, which is the run or its SFT stage. A step of one is no step of the other."""
    before = st.session_state.get("clock:of", (run.id, shown.id))
    st.session_state["clock:of"] = run.id, shown.id
    if before[0] == run.id and before[1] != shown.id:
        live()
    return chosen(feed)


def live() -> None:
    """Go back to the newest step."""
    link.put(AT, AT.default)


def payload(run: RunRow, feed: Feed, at: int | None) -> dict[str, Any]:
    """The data of the scrubber: the steps there are, the one shown (None: the newest), and where knobs were changed."""
    first = feed.steps[0].step
    marks: dict[int, list[str]] = {}
    for change in feed.history.moves:
        marks.setdefault(min(max(change.step, first), feed.last_step), []).append(change.text)
    return {"run": run.id, "first": first, "last": feed.last_step, "total": max(run.spec.steps, feed.last_step),
            "at": at, "going": active(run), "marks": [[step, ", ".join(texts)] for step, texts in marks.items()]}


def show(run: RunRow, feed: Feed, at: int | None) -> None:
    """Draw the scrubber, from the first step on."""
    if feed.steps:
        scrubber(payload(run, feed, at), key="scrubber", on_step=lambda step: link.put(AT, step))
