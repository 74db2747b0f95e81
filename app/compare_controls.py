"""How the runs are looked at: the view, the metric, the baseline, the axis and the smoothing. All of it in the link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from app import compare_place
from app.compare_data import Chosen, axes_of, panel_metrics, runs_of
from app.compare_place import CURVES
from app.session import SMOOTHEST
from labcore.catalog.metrics import METRICS

NONE = "No baseline"


def row(chosen: Chosen, views: Mapping[str, str]) -> None:
    """One line of controls; each writes its choice into the URL, which the page is drawn from."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="compare_controls"):
        present = chosen.place.view if chosen.place.view in views else CURVES
        key = _held(f"compare:view:{'-'.join(views)}", present)
        st.segmented_control("View", list(views), format_func=views.get, key=key, required=True,
                             label_visibility="collapsed", on_change=_moved, args=(chosen, "view", key))
        _metric(chosen)
        _baseline(chosen)
        _look(chosen)


def _moved(chosen: Chosen, field: str, key: str) -> None:
    compare_place.go(chosen.place, **{field: st.session_state[key]})


def _held(key: str, value: Any) -> str:
    """The key of a widget that shows `value`: what the link says, whatever the widget showed before."""
    if st.session_state.get(key) != value:
        st.session_state[key] = value
    return key


def _metric(chosen: Chosen) -> None:
    """The metrics that any of the runs logs, those of its charts first."""
    there = set().union(*chosen.logged.values())
    offered = [key for key in panel_metrics(chosen.sources) if key in there or key == chosen.metric]
    words = _words(offered)
    key = _held(f"compare:metric:{hash(tuple(words.values()))}", chosen.metric)
    st.selectbox("Metric", offered, format_func=words.get, key=key, on_change=_moved, args=(chosen, "metric", key),
                 label_visibility="collapsed", width=230, help="What the big chart and the table judge by")


def _words(keys: Sequence[str]) -> dict[str, str]:
    """Metric -> its label, with the key where two have the same."""
    labels = [METRICS[key].label for key in keys]
    return {key: f"{label} ({key})" if labels.count(label) > 1 else label
            for key, label in zip(keys, labels, strict=True)}


def _baseline(chosen: Chosen) -> None:
    """The group that the others are measured against. The link names one of its runs."""
    if len(chosen.groups) < 2:
        return
    runs = {group.label: runs_of(group)[0] for group in chosen.groups}
    present = chosen.baseline.label if chosen.baseline else NONE
    key = _held(f"compare:baseline:{hash(tuple(runs))}", present)

    def pinned() -> None:
        compare_place.go(chosen.place, baseline=runs.get(st.session_state[key], ""))

    st.selectbox("Baseline", [NONE, *runs], key=key, on_change=pinned, label_visibility="collapsed", width=230,
                 format_func=lambda label: label if label == NONE else f"Baseline: {label}",
                 help="Pin a group: the others are shown as differences to it")


def _look(chosen: Chosen) -> None:
    place, axes = chosen.place, axes_of(chosen.traces)
    said = axes.get(chosen.axis, chosen.axis) + (f" · {place.smooth:g}" if place.smooth else "")
    with st.popover(said, icon=":material/tune:", help="The axis and the smoothing of all charts"):
        if axes:
            first = next(iter(axes))
            key = _held(f"compare:x:{'-'.join(axes)}", chosen.axis)
            st.segmented_control("Horizontal axis", list(axes), format_func=axes.get, required=True, key=key,
                                 on_change=lambda: compare_place.go(
                                     place, x="" if st.session_state[key] == first else st.session_state[key]))
        smooth = _held("compare:smooth", place.smooth)
        st.slider("Smoothing", 0.0, SMOOTHEST, step=0.01, key=smooth, on_change=_moved, args=(chosen, "smooth", smooth),
                  help="Exponential average, never across a knob's marker or a fork. The rows stay faint behind it.")
        traces = _held("compare:traces", place.traces)
        st.toggle("Draw each seed", key=traces, on_change=_moved, args=(chosen, "traces", traces))
    with st.popover("Link", icon=":material/link:", help="This view's address"):
        st.code(compare_place.address(place), language=None, wrap_lines=True)
        st.caption("Opens this view again, in any browser on this machine.")
