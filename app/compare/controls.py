"""The controls of the page Compare: view, metric, baseline, axis and smoothing. The link holds all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st

from app import link
from app.compare.data import Chosen, axes_of, panel_metrics, runs_of, usual_axis
from app.compare.place import CURVES, change
from app.session import SMOOTHEST
from app.widget_state import WidgetState, widget_state
from labcore.catalog.metrics import METRICS

NONE = "No baseline"


def row(chosen: Chosen, views: Mapping[str, str], judges: bool) -> None:
    """One line of controls; each writes its choice into the URL, which the page is drawn from.

    `judges`: the view is of the chosen metric, baseline and axis.
    """
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="compare_controls"):
        present = chosen.place.view if chosen.place.view in views else CURVES
        shown = widget_state("compare:view", present, tuple(views))
        st.segmented_control("View", list(views), format_func=views.__getitem__, default=shown.value, key=shown.key,
                             required=True, label_visibility="collapsed", on_change=moved("view", shown))
        if judges:
            _metric(chosen)
            _baseline(chosen)
            _look(chosen)
        with st.popover("Link", icon=":material/link:", help="This view's address"):
            st.code(link.address(link.written(chosen.place)), language=None, wrap_lines=True)
            st.caption("Opens this view again, in any browser on this machine.")


def moved(field: str, shown: WidgetState, to: Callable[[Any], Any] = lambda value: value) -> Callable[[], None]:
    """What a widget does when it is changed: `field` of the link becomes what `to` makes of its value."""
    return lambda: change(**{field: to(shown.taken())})


def _metric(chosen: Chosen) -> None:
    """The metrics that any of the runs logs, those of its charts first."""
    there = set().union(*chosen.logged.values())
    offered = [key for key in panel_metrics(chosen.sources) if key in there or key == chosen.metric]
    words = _words(offered)
    shown = widget_state("compare:metric", chosen.metric, tuple(offered))
    st.selectbox("Metric", offered, offered.index(shown.value), format_func=words.__getitem__, key=shown.key, width=230,
                 on_change=moved("metric", shown), label_visibility="collapsed",
                 help="The metric of the big chart and the table")


def _words(keys: Sequence[str]) -> dict[str, str]:
    """Metric -> its label, with the key where two have the same."""
    labels = [METRICS[key].label for key in keys]
    return {key: f"{label} ({key})" if labels.count(label) > 1 else label
            for key, label in zip(keys, labels, strict=True)}


def _baseline(chosen: Chosen) -> None:
    """The group that the others are measured against. The link names one of its runs."""
    if len(chosen.groups) < 2:
        return
    runs = {NONE: "", **{group.label: runs_of(group)[0] for group in chosen.groups}}
    shown = widget_state("compare:baseline", chosen.baseline.label if chosen.baseline else NONE, tuple(runs.items()))
    st.selectbox("Baseline", list(runs), list(runs).index(shown.value), key=shown.key, label_visibility="collapsed",
                 format_func=lambda label: label if label == NONE else f"Baseline: {label}", width=230,
                 on_change=moved("baseline", shown, runs.get),
                 help="Pin a group to show the others as differences from it")


def _look(chosen: Chosen) -> None:
    place, axes = chosen.place, axes_of(chosen.traces)
    said = axes.get(chosen.axis, chosen.axis) + (f" · {place.smooth:g}" if place.smooth else "")
    with st.popover(said, icon=":material/tune:", help="Axis and smoothing of all charts"):
        if axes:
            usual = usual_axis(chosen.traces, place.by)
            x = widget_state("compare:x", chosen.axis, tuple(axes))
            st.segmented_control("Horizontal axis", list(axes), format_func=axes.__getitem__, default=x.value,
                                 key=x.key, required=True, on_change=moved(
                                     "x", x, lambda axis: "" if axis == usual else axis))
        smooth = widget_state("compare:smooth", place.smooth)
        st.slider("Smoothing", 0.0, SMOOTHEST, smooth.value, 0.01, key=smooth.key,
                  on_change=moved("smooth", smooth),
                  help="Exponential moving average. It never crosses a knob change or a fork. The raw values stay "
                       "faint behind it.")
        traces = widget_state("compare:traces", place.traces)
        st.toggle("Draw each seed", traces.value, key=traces.key, on_change=moved("traces", traces))
