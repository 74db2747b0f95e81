"""The view "Curves": one big chart of the chosen metric with its differences below, and the other charts beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import streamlit as st

from app import resend, theme
from app.compare.data import Chosen, basis, judged, look_of, small_panels
from app.compare.lines import Lines, Look, gap_of, lines_of, marks_of
from app.compare.place import change
from app.components.compare_chart import compare_chart
from labcore.analysis.compare.best import Standing
from labcore.analysis.compare.groups import Group
from labcore.analysis.estimate import FEWEST
from labcore.catalog import panels
from labcore.runs.traces import AXES

BIG, SMALL = 1000, 240  # points of a line
SENT = "compare:sent"
CHARTS = "compare"  # all of the page, for `resend`


class Sent:
    """The lines that one browser tab has. A line is computed and sent again only if its runs have new rows.

    Only the present lines and those of the last two choices are kept, so that going back to these costs nothing.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], tuple[Any, Lines]] = {}
        self._given: dict[str, Lines] = {}
        self._scene: Any = None
        self._used: set[tuple[Any, ...] | str] = set()  # keys of both in this scene, and in the one before
        self._before: set[tuple[Any, ...] | str] = set()

    def begin(self, scene: Any) -> None:
        """`scene`, anything that can be compared, is drawn from here on."""
        if scene == self._scene:
            return
        kept = self._used | self._before
        self._made = {what: made for what, made in self._made.items() if what in kept}
        self._given = {panel: lines for panel, lines in self._given.items() if panel in kept}
        self._scene, self._before, self._used = scene, self._used, set()

    def lines(self, what: tuple[Any, ...], version: Any, make: Callable[[], Lines]) -> Lines:
        """The lines of `what`, computed anew if their version has changed."""
        self._used.add(what)
        if what not in self._made or self._made[what][0] != version:
            self._made[what] = version, make()
        return self._made[what][1]

    def changed(self, panel: str, lines: Lines, full: bool) -> Lines:
        """The lines of a panel that the browser does not have yet, or all."""
        given = {} if full else self._given.get(panel, {})
        self._used.add(panel)
        self._given[panel] = lines
        return {key: line for key, line in lines.items() if given.get(key) is not line}


def sent() -> Sent:
    found: Sent = st.session_state.setdefault(SENT, Sent())
    return found


def version(group: Group) -> tuple[Any, ...]:
    """A value that changes whenever a group's lines may have changed."""
    return tuple((trace.run, trace.axes["step"].size, trace.breaks) for trace in group.traces)


def family_version(chosen: Chosen, group: Group) -> tuple[Any, ...]:
    """The versions of the parents of a group's forks, and whether each run of the group was forked itself."""
    above = chosen.above
    forked = {parent.run for parent in above.values()}
    return tuple((trace.run in forked, version(Group("", (above[trace.run],), (), {})) if trace.run in above else ())
                 for trace in group.traces)


def show(chosen: Chosen, stand: Standing | None, full: bool) -> None:
    """Draw the curves; the big chart goes to the browser before the rows of the others are read."""
    left, right = st.columns([1.5, 1], gap="medium")
    with left:
        data = payload(chosen, [chosen.metric], big=True, full=full)
        compare_chart(data, "compare_main", on_resync=resync)
    keys = small_panels(chosen)
    with right:
        data = payload(chosen.with_metrics([chosen.metric, *keys]), keys, big=False, full=full)
        compare_chart(data, "compare_small", on_resync=resync, on_metric=lambda key: change(metric=key))
    st.caption(f"{words(chosen)}. Drag to zoom all charts; double-click to reset.")


def resync() -> None:
    resend.missed(CHARTS)


def payload(chosen: Chosen, metrics: Sequence[str], big: bool, full: bool) -> dict[str, Any]:
    """The data of `compare_chart`: panels with the lines that the browser does not have yet."""
    groups = look_of(chosen)
    panels = [_panel(chosen, metric, big, full) for metric in metrics]
    scene = "|".join(",".join(trace.run for trace in group.traces) for group in chosen.groups)
    return {"key": f"{scene} {chosen.axis} {' '.join(metrics)}", "scene": scene, "full": full, "main": big,
            "legend": big, "axis": chosen.axis, "groups": groups, "panels": panels}


def _panel(chosen: Chosen, key: str, big: bool, full: bool) -> dict[str, Any]:
    place, metric, above = chosen.place, chosen.metric_of(key), chosen.above
    counted = judged(chosen).groups  # the runs that the verdict is of: means and differences are over these alone
    base = counted[chosen.groups.index(chosen.baseline)] if chosen.baseline else None
    look = Look(key, chosen.axis, chosen.smoothing(key), place.traces and big, BIG if big else SMALL, big)
    lines: Lines = {}
    for number, group in enumerate(chosen.groups):
        of = counted[number]
        now = version(group), version(of), family_version(chosen, group)
        lines |= sent().lines((number, look, "line"), now, partial(lines_of, group, number, look, above, of))
        if big:
            apart = Look(key, chosen.axis, most=SMALL)
            lines |= sent().lines((number, apart, "gap"), (now, base and version(base)),
                                  partial(gap_of, of, number, base, apart, above))
    marks = [mark for number, group in enumerate(chosen.groups) for mark in marks_of(group, number, chosen.axis)]
    return {"key": key, "title": metric.label, "symbol": theme.symbol(metric.symbol), "unit": metric.page_unit,
            "help": f"{metric.help} {metric.healthy}".strip().replace('"', "'"),
            "scale": "small rate" if metric.key in panels.SMALL else metric.scale,
            "digits": max(metric.digits, 3), "axis": AXES[chosen.axis], "height": 480 if big else 150, "names": big,
            "strip": strip_words(chosen, key), "alt": alt(chosen, key, lines), "caption": words(chosen, key),
            "order": list(lines), "lines": sent().changed(f"{key} {big}", lines, full), "marks": marks}


def strip_words(chosen: Chosen, key: str) -> str:
    """The title of the difference strip."""
    metric = chosen.metric_of(key)
    unit = "percentage points" if metric.share else metric.unit
    against = f"minus {chosen.baseline.label}" if chosen.baseline else "fork minus its parent"
    return f"Difference: {against}{f', {unit}' if unit else ''}"


def alt(chosen: Chosen, key: str, lines: Lines) -> str:
    """The chart in a sentence."""
    metric = chosen.metric_of(key)
    ends = [f"{group.label} {theme.metric_text(metric, lines[f'{place}:line']['y'][-1], exact=True)}"
            for place, group in enumerate(chosen.groups) if f"{place}:line" in lines]
    return f"{metric.label} over {AXES[chosen.axis]}: {', '.join(ends) or 'no values yet'}"


def words(chosen: Chosen, key: str = "") -> str:
    """The caption of the lines: their mean, their band and their smoothing."""
    seeds = [len(group.traces) for group in chosen.groups]
    several, whole = max(seeds, default=0) > 1, chosen.place.traces or any(1 < count < FEWEST for count in seeds)
    parts = ["Mean over seeds with its 95 % bootstrap band, up to the last step that all of them reached; faint: "
             f"single seeds{'' if whole else ' beyond that step'}"
             if several else "One line for each run"]
    if smoothing := chosen.smoothing(key):
        parts.append(f"smoothed {smoothing:g}" + (", bands unsmoothed" if several else ", raw values faint"))
    if several and min(seeds) < FEWEST:
        parts.append(f"no band for fewer than {FEWEST} seeds")
    if left := basis(chosen):
        parts.append(left)
    return "; ".join(parts)
