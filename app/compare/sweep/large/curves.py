"""The curves of the best, the median and the worst setting of a large sweep."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from app import theme
from app.compare import data
from app.compare.curves import sent, version
from app.compare.lines import Lines, Look, lines_of
from app.compare.place import Place
from app.compare.sweep.large import figures
from app.compare.sweep.large.standing import head, name
from app.components.figure_chart import figure_chart
from labcore.analysis.compare.ranking import Setting, Standing
from labcore.analysis.compare.table import Group

POINTS = 240  # of a curve


def show(place: Place, now: Standing, kind: str) -> None:
    """Draw them, or say when they will be."""
    chosen = now.extremes()
    if not chosen:
        if now.metric.better and now.active:
            st.caption("The curves of the best, the median and the worst setting appear once all runs of a setting "
                       "have ended.")
        return
    look = Look(now.metric.key, "step", place.smooth, False, POINTS, False)
    rows = [[run for run in setting.runs if run.state == "finished"] or [run for run in setting.runs if run.step]
            for setting in chosen.values()]
    traces = iter(data.reader().traces([run for each in rows for run in each], [now.metric.key]))
    groups = [Group(title, tuple(next(traces) for _ in each), (), {}) for title, each in zip(chosen, rows, strict=True)]
    lines = [_with_band(setting, sent().lines((place.sweep, group.label, look), version(group),
                                              partial(lines_of, group, number, look, {})))
             for number, (setting, group) in enumerate(zip(chosen.values(), groups, strict=True))]
    colours = dict(zip(("Best", "Median", "Worst"), (
        (theme.LIGHT[0], theme.DARK[0]), figures.MIDDLE, (theme.LIGHT[5], theme.DARK[5])), strict=True))
    caption = _words(now, [setting for setting, each in zip(chosen.values(), rows, strict=True) if len(each) > 1])
    head("From the best to the worst", caption[0].lower() + caption[1:])
    named = [f"{title}: {name(now, setting)}{_short_of(setting)}" for title, setting in chosen.items()]
    figure_chart(figures.curves(named, lines, [colours[title] for title in chosen], now.metric, kind), "at_size_curves",
                 title=f"{now.metric.label}: the best, the median and the worst setting", caption=caption,
                 alt="; ".join(named))


def _with_band(setting: Setting, lines: Lines) -> Lines:
    """The lines of a setting; of runs of which some did not finish there is no band, since the others are the better
    ones."""
    return lines if setting.whole else {key: line for key, line in lines.items() if line["kind"] != "band"}


def _words(now: Standing, several: Sequence[Setting]) -> str:
    """What the curves are; `several` are the settings of more than one run."""
    words = "One seed each"
    if several:
        words = "Mean over seeds" + (" with its 95 % bootstrap band" if any(each.whole for each in several) else "")
        if not all(each.whole for each in several):
            words += ("; no band" if words.endswith("seeds") else "; without a band") + " where a run did not finish"
    count = len(now.ended)
    if count == len(now.ranked) or not all(setting.over for setting in now.ended):
        return words
    return f"{words}. Based on the {count:,} settings whose runs have all ended"


def _short_of(setting: Setting) -> str:
    """Where not all runs of a setting finished, how many did."""
    return "" if setting.whole else (f" ({setting.mean.count if setting.mean else 0:,} of {len(setting.runs):,} "
                                     "finished)")
