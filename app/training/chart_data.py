"""The data of the live charts, as the browser gets it: panels, rows, markers and colours of runs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from app.naming import apart
from app.theme import DARK, LIGHT
from app.training.feed import Feed, panels
from labcore.analysis.doctor import doctor
from labcore.catalog.knob import shown
from labcore.runs.fork import movable
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.store.rows import RunRow
from labcore.runs.titles import number as number_of
from labcore.runs.titles import title

GHOST = "#98A1AB", "#77828D"  # of a run behind the curves, on the light and on the dark ground


def payload(feeds: dict[str, Feed], *, full: bool, x: str, smooth: float, ended: bool, at: int | None = None,
            unfolded: bool = False, named: Mapping[str, RunRow] | None = None,
            ghost: dict[str, Feed] | None = None) -> dict[str, Any]:
    """The data of the live chart component: {run id: {colour, label, rows}}, markers, panels and the view.

    `at` is the step that the page shows, None for the newest; `unfolded`: the small charts stand open; `named` are the
    runs by their ids, from which their names are made: in full, and short at the end of a line. With `full` all rows
    are sent, otherwise only rows that the browser may lack. Several runs are drawn over each other; the first one's
    algorithm decides which charts there are. A fork whose parent is among them is drawn as a branch of it: it begins
    with its parent's row there, and the parent's line steps back. The `ghost` is drawn thin and grey behind all.
    """
    own, behind = feeds, ghost or {}
    first = next(iter(own.values()))
    sent = {run_id: 0 if full else feed.behind() for run_id, feed in (own | behind).items()}
    runs = {run_id: _run(run_id, own, named or {}, sent[run_id]) for run_id in own}
    runs |= {run_id: _ghost(run_id, feed, named or {}, sent[run_id]) for run_id, feed in behind.items()}
    for feed in (own | behind).values():
        feed.sent = feed.last_step
    return {"key": "+".join(runs), "panels": panels(first.spec, own.values(), ended), "runs": runs, "ended": ended,
            "awaited": not ended and not any(feed.steps for feed in own.values()),
            "markers": [mark for run_id in own for mark in _markers(run_id, own)],
            "x": x, "axis": first.axes()[x].lower(), "smooth": smooth, "at": at, "unfolded": unfolded}


def _run(run_id: str, feeds: dict[str, Feed], named: Mapping[str, RunRow], after: int) -> dict[str, Any]:
    """A run as the charts draw it, with its rows beyond the step `after`."""
    feed, ids = feeds[run_id], list(feeds)
    specs = [each.spec for each in feeds.values()]
    parent_id = specs[0].parent[0] if specs[0].parent else None
    root = feed.root(feeds.get(feed.spec.parent[0]) if feed.spec.parent else None)
    colour = depth(feed, feeds) if any(spec.parent for spec in specs) else ids.index(run_id)
    row = named.get(run_id)
    short = ("this run" if run_id == ids[0] else "parent" if run_id == parent_id else number_of(row) if row else run_id)
    return {"colour": [LIGHT[colour % 6], DARK[colour % 6]], "label": title(row) if row else run_id, "short": short,
            "settings": settings(feed.spec), "total": feed.spec.steps,
            "muted": any(spec.parent and spec.parent[0] == run_id for spec in specs), "ghost": False,
            "root": root[0] if root else None, "parent": feed.spec.parent and feed.spec.parent[0], "after": after,
            "rows": [*([root] if root and root[0] > after else []), *feed.rows(after)]}


def settings(spec: RunSpec) -> str:
    """The settings of a run beside its title, where a chart is saved."""
    return ", ".join(filter(None, (apart(spec), "" if spec.kind_row.elsewhere else f"seed {spec.seed}")))


def _ghost(run_id: str, feed: Feed, named: Mapping[str, RunRow], after: int) -> dict[str, Any]:
    """Another run of the task, to be drawn behind the one that is looked at."""
    row = named.get(run_id)
    return {"colour": list(GHOST), "label": title(row) if row else run_id,
            "short": number_of(row) if row else run_id, "total": feed.spec.steps, "muted": False,
            "ghost": True, "root": None, "parent": None, "after": after, "rows": feed.rows(after)}


def _markers(run_id: str, feeds: dict[str, Feed]) -> list[dict[str, Any]]:
    """The verticals of the charts: changes of knobs, verdicts of the doctor, and where a fork begins."""
    feed = feeds[run_id]
    parent = feeds.get(feed.spec.parent[0]) if feed.spec.parent else None
    until = _left(run_id, feeds)
    # The marker stands before the first step that the change counts in, where the smoothing ends. One that came after
    # a fork had left is `beside`: it ends the smoothing of its own run's line, and is not drawn.
    marks = [{"run": run_id, "step": change.step - 1, "update": change.update, "text": change.text,
              "event": None if feed.spec.kind_row.elsewhere else change.event, "beside": change.step > until}
             for change in feed.history.moves]
    marks += [{"run": run_id, "step": said.step, "update": None, "text": said.finding.verdict, "event": None,
               "verdict": True, "beside": said.step > until} for said in doctor.said(feed.events)
              if said.finding and said.finding.severity != "note"]
    if parent and (root := feed.root(parent)):
        marks.append({"run": run_id, "step": root[0], "update": root[3].get("updates"),
                      "text": f"fork{branch(feed.spec, parent)}", "event": None,
                      "beside": root[0] > until})
    return marks


def _left(run_id: str, feeds: dict[str, Feed]) -> float:
    """The step at which a fork leaves a run, on the way to the first of the `feeds`; infinite for that one itself."""
    forks = (feed.spec.parent for feed in feeds.values() if feed.spec.parent)
    return next((step for parent, step in forks if parent == run_id), inf)


def depth(feed: Feed, feeds: Mapping[str, Feed]) -> int:
    """The number of a run's ancestors in `feeds`: the place of its colour, so that a parent keeps its own."""
    count = 0
    while feed.spec.parent and feed.spec.parent[0] in feeds:
        feed, count = feeds[feed.spec.parent[0]], count + 1
    return count


def branch(spec: RunSpec, parent: Feed) -> str:
    """The settings of a fork that differ from its parent's at that step: ": β 0.1", ": PPO"; empty if none differ."""
    if spec.algorithm != parent.spec.algorithm:
        return f": {spec.row.label}"
    assert spec.parent is not None, "a fork"
    before = parent.knobs(spec.parent[1])
    # A trainer may have sent only some of its settings.
    moved = [f"{knob.name} {shown(spec.knobs[knob.key])}" for knob in movable(parent.spec, spec.algorithm)
             if knob.key in spec.knobs and spec.knobs[knob.key] != before.get(knob.key)]
    return f": {', '.join(moved[:2])}{' …' if moved[2:] else ''}" if moved else "" if spec.twin else ": fresh"
