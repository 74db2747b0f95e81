"""The controls of the page Compare: view, both axes, baseline, charts and smoothing. The link holds all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st

from app import link
from app.compare.data import MOST_CHARTS, Chosen, axes_of, offered_metrics, runs_of, small_panels, usual_axis
from app.compare.place import CURVES, change
from app.compare.plane import fits, pair
from app.components.projector import projector
from app.session import SMOOTHEST
from app.widget_state import WidgetState, widget_state

NONE = "No baseline"
CSS = """<style>
@media (max-width:640px){.st-key-compare_controls .stButtonGroup>div{flex-wrap:wrap}
.st-key-compare_controls .st-key-projector{display:none}
.st-key-compare_controls .stElementContainer:has(.stSelectbox){
  width:calc(50% - .55rem)!important;flex:1 1 calc(50% - .55rem)!important;min-width:0}}
</style>"""


def row(chosen: Chosen, views: Mapping[str, str], judges: bool) -> None:
    """Draw one line of controls. Each writes its choice into the URL, from which the page is drawn.

    `judges`: the view is of the chosen metric, baseline and axis.
    """
    st.html(CSS)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="compare_controls"):
        present = chosen.place.view if chosen.place.view in views else CURVES
        shown = widget_state("compare:view", present, tuple(views))
        st.segmented_control("View", list(views), format_func=views.__getitem__, default=shown.value, key=shown.key,
                             required=True, label_visibility="collapsed", on_change=moved("view", shown))
        if judges:
            _metric(chosen)
            _across(chosen)
            _baseline(chosen)
        # the buttons wrap together, so that none stands alone in a line
        with st.container(horizontal=True, vertical_alignment="center", gap="small", width="content",
                          key="compare_buttons"):
            if judges:
                _look(chosen)
            projector("projector")
            with st.popover("Link", icon=":material/link:", help="This view's address"):
                st.code(link.address(link.written(chosen.place)), language=None, wrap_lines=True)
                st.caption("Opens this view again, in any browser on this machine.")


def moved(field: str, shown: WidgetState, to: Callable[[Any], Any] = lambda value: value) -> Callable[[], None]:
    """The `on_change` of a widget: writes its value, converted by `to`, into `field` of the link."""
    return lambda: change(**{field: to(shown.taken())})


def _metric(chosen: Chosen) -> None:
    """The vertical axis."""
    offered = offered_metrics(chosen)
    words = _words(chosen, offered)
    shown = widget_state("compare:metric", chosen.metric, tuple(offered))
    st.selectbox("Metric", offered, offered.index(shown.value), format_func=words.__getitem__, key=shown.key, width=200,
                 on_change=moved("metric", shown), label_visibility="collapsed",
                 help="The metric of the big chart and the table")


def _across(chosen: Chosen) -> None:
    """The horizontal axis: one that the runs count, or another metric, for which the view of two metrics is opened."""
    axes = axes_of(chosen.traces)
    if not axes:
        return
    metrics = [key for key in offered_metrics(chosen) if key not in axes]
    words = axes | _words(chosen, metrics)
    usual, two = usual_axis(chosen.traces, chosen.place.by), chosen.place.view == "plane" and fits(chosen)
    present = pair(chosen)[1] if two and metrics else chosen.axis
    shown = widget_state("compare:x", present, tuple(words))

    def changed() -> None:
        key = shown.taken()
        if key not in axes:
            change(x=key, view="plane")
        else:
            change(x="" if key == usual else key, view=CURVES if two else chosen.place.view)

    options = [*axes, *metrics]
    st.selectbox("Horizontal axis", options, options.index(shown.value), key=shown.key, width=175,
                 format_func=lambda key: f"over {words[key]}" if key in axes else f"against {words[key]}",
                 label_visibility="collapsed", on_change=changed, help="Horizontal axis: a count, or another metric")


def _words(chosen: Chosen, keys: Sequence[str]) -> dict[str, str]:
    """Metric -> its label, with the key where two have the same."""
    labels = [chosen.metric_of(key).label for key in keys]
    return {key: f"{label} ({key})" if labels.count(label) > 1 else label
            for key, label in zip(keys, labels, strict=True)}


def _baseline(chosen: Chosen) -> None:
    """The group that the others are measured against. The link names one of its runs."""
    if len(chosen.groups) < 2:
        return
    runs = {NONE: "", **{group.label: runs_of(group)[0] for group in chosen.groups}}
    shown = widget_state("compare:baseline", chosen.baseline.label if chosen.baseline else NONE, tuple(runs.items()))
    st.selectbox("Baseline", list(runs), list(runs).index(shown.value), key=shown.key, label_visibility="collapsed",
                 format_func=lambda label: label if label == NONE else f"Baseline: {label}", width=165,
                 on_change=moved("baseline", shown, runs.get),
                 help="Pin a group to show the others as differences from it")


def _look(chosen: Chosen) -> None:
    place, offered, smoothing = chosen.place, offered_metrics(chosen), chosen.smoothing()
    with st.popover(f"Smoothed {smoothing:g}" if smoothing else "Charts", icon=":material/tune:",
                    help="Choose the small charts and the smoothing"):
        usual = small_panels(chosen)
        words = _words(chosen, list(dict.fromkeys([*offered, *usual])))
        charts = widget_state("compare:charts", usual, tuple(words))
        st.multiselect("Small charts", list(words), charts.value, format_func=words.__getitem__, key=charts.key,
                       max_selections=MOST_CHARTS, on_change=moved("charts", charts, tuple),
                       placeholder="Default charts", help="Shown beside the large chart in the view Curves")
        smooth = widget_state("compare:smooth", smoothing)
        st.slider("Smoothing", 0.0, SMOOTHEST, smooth.value, 0.01, key=smooth.key,
                  on_change=moved("smooth", smooth),
                  help="Exponential moving average. It never crosses a knob change or a fork. The raw values stay "
                       "faint behind it.")
        traces = widget_state("compare:traces", place.traces)
        st.toggle("Draw each seed", traces.value, key=traces.key, on_change=moved("traces", traces))
