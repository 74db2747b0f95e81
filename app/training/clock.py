"""The page's clock: the one step that tiles, charts, samples, tokens, surrogate, board and films show."""

from __future__ import annotations

from typing import Any

from app import link
from app.components.scrubber import scrubber
from app.lab import active
from app.link import Param
from app.training.feed import Feed
from labcore.store.rows import RunRow

AT = Param("at", 0, link.whole())  # 0: always the newest


def chosen(feed: Feed) -> int | None:
    """The earlier step that the user looks at; None while the page shows the newest one."""
    at = link.get(AT)
    return max(at, feed.steps[0].step) if feed.steps and 0 < at < feed.last_step else None


def live() -> None:
    """Back to the newest step."""
    link.put(AT, AT.default)


def payload(run: RunRow, feed: Feed, at: int | None) -> dict[str, Any]:
    """What the scrubber gets: the steps there are, the one shown (None: the newest), and where knobs were changed."""
    first = feed.steps[0].step
    marks: dict[int, list[str]] = {}
    for change in feed.history.changes:
        marks.setdefault(min(max(change.step, first), feed.last_step), []).append(change.text)
    return {"run": run.id, "first": first, "last": feed.last_step, "total": max(run.spec.steps, feed.last_step),
            "at": at, "going": active(run), "marks": [[step, ", ".join(texts)] for step, texts in marks.items()]}


def show(run: RunRow, feed: Feed, at: int | None) -> None:
    """The scrubber, from the first step on."""
    if feed.steps:
        scrubber(payload(run, feed, at), key="scrubber", on_step=lambda step: link.put(AT, step))
