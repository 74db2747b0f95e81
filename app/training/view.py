"""The view of a run: student or researcher, axis, smoothing. The link holds it."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from app import link
from app.link import Param
from app.session import SMOOTH, SMOOTHEST, X, axis
from app.training import ghost
from app.widget_state import widget_state
from labcore.runs.store.rows import RunRow

STUDENT, RESEARCHER = "student", "researcher"
VIEWS = {STUDENT: "Student", RESEARCHER: "Researcher"}
VIEW = Param("view", STUDENT, link.one_of(VIEWS))


def researcher() -> bool:
    """True if everything is shown; a student sees the most important charts, and the others after a click."""
    return link.get(VIEW) == RESEARCHER


def show(run: RunRow, axes: Mapping[str, str]) -> None:
    """Draw the choices: student or researcher, one axis and one smoothing for all charts of the run's page, and the
    ghost."""
    x = widget_state(f"view:x:{run.spec.kind}", axis(axes), of=tuple(axes))
    smooth = widget_state("view:smooth", link.get(SMOOTH))
    chosen = [VIEWS[link.get(VIEW)], axes[x.value].lower(), *([f"{smooth.value:g}"] if smooth.value else [])]
    with st.popover(" · ".join(chosen), icon=":material/tune:", width="content",
                    help="View, axis and smoothing of all charts"):
        _who()
        st.segmented_control("Horizontal axis", list(axes), format_func=lambda key: axes[key], default=x.value,
                             required=True, key=x.key,
                             on_change=lambda: link.put(X, x.taken(), default=next(iter(axes))))
        st.slider("Smoothing", 0.0, SMOOTHEST, smooth.value, 0.01, key=smooth.key,
                  help="Exponential moving average. It never crosses a knob change or a fork. The raw line stays "
                       "faint behind it.", on_change=lambda: link.put(SMOOTH, smooth.taken()))
        _ghost(run)
        forks = "" if run.spec.kind_row.elsewhere else " Click a marker's label to fork from before it."
        st.caption(f"Drag on a chart to zoom all of them; double-click for the whole run.{forks}")


def _ghost(run: RunRow) -> None:
    options = ghost.options(run)
    chosen = link.get(ghost.GHOST)
    behind = widget_state(f"view:ghost:{run.id}", chosen if chosen in options else "", of=tuple(options.items()))
    st.selectbox("Run behind the curves", list(options), list(options).index(behind.value), key=behind.key,
                 format_func=options.__getitem__, on_change=lambda: link.put(ghost.GHOST, behind.taken()),
                 help="Draws another run of this task, thin and grey, in every chart")


def _who() -> None:
    who = widget_state("view:who", link.get(VIEW))
    st.segmented_control("View", list(VIEWS), format_func=lambda key: VIEWS[key], default=who.value, required=True,
                         key=who.key, on_change=lambda: link.put(VIEW, who.taken()),
                         help="Student: the three charts that tell the story, the others on request. Researcher: all "
                         "charts.")
