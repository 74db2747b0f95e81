"""The numbers that are typed for knobs: one out of bounds stays in its box, to be put right, and nothing can be started
with it meanwhile. Streamlit's own bounds would keep it in the browser, and a run would start without it."""

from __future__ import annotations

import streamlit as st

from app.naming import worded
from labcore.catalog.knob import Knob
from labcore.errors import LabError

KEPT = "typed"


def forget(scope: str) -> None:
    """The boxes of `scope` are about to be drawn, and only what is drawn counts."""
    _boxes(scope).clear()


def box(scope: str, knob: Knob, key: str) -> None:
    """The knob has a box with this widget key."""
    _boxes(scope)[knob.key] = knob, key


def moved(scope: str, knob: Knob) -> None:
    """The knob was given a value that it can have: what its box holds counts no more, until it is drawn again."""
    _boxes(scope).pop(knob.key, None)


def is_box(scope: str, knob: Knob, key: str) -> bool:
    """Whether the widget with this key is the box of the knob."""
    return _boxes(scope).get(knob.key) == (knob, key)


def check(scope: str) -> None:
    """Raise LabError where a box holds a number that its knob cannot have."""
    for knob, _ in _boxes(scope).values():
        if why := fault(scope, knob):
            raise LabError(why)


def fault(scope: str, knob: Knob) -> str:
    """Why the knob cannot have what its box holds, in a sentence; empty where it can."""
    _, key = _boxes(scope)[knob.key]
    try:
        if key in st.session_state:  # else it is drawn no more
            knob.check(st.session_state[key])
    except LabError as error:
        return worded(str(error), [knob])
    return ""


def _boxes(scope: str) -> dict[str, tuple[Knob, str]]:
    every: dict[str, dict[str, tuple[Knob, str]]] = st.session_state.setdefault(KEPT, {})
    return every.setdefault(scope, {})
