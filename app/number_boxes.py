"""Number boxes: a value out of bounds stays in its box, which says the bounds, and no run starts meanwhile. Streamlit's
own bounds would keep it in the browser, and a run would start without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from app.marked import worded
from app.tokens import literal
from app.widget_state import widget_state
from labcore.catalog.knob import Knob
from labcore.errors import LabError

KEPT = "typed"


def number(scope: str, name: str, title: str, value: Any, bounds: tuple[float, float], take: Callable[[Any], None],
           column: Any = st, help: str = "", **more: Any) -> None:
    """A box for a number that is no knob. It has the type of its `bounds`; only a number within these is passed to
    `take`."""
    low, high = bounds
    knob = Knob(name, title, low, "", low=low, high=high)
    shown = widget_state(f"{scope}:{name}", value)
    box(scope, knob, shown.key)

    def changed() -> None:
        if not fault(scope, knob):
            take(shown.taken())

    form = {"step": 1} | more if isinstance(low, int) else {"format": "%g"} | more
    column.number_input(title, value=shown.value, key=shown.key, on_change=changed,
                        help=f"{help} From {low:,} to {high:,}.".strip(), **form)
    say(scope, knob, column)


def say(scope: str, knob: Knob, column: Any = st) -> None:
    """The sentence below the knob's box that says why the typed value is not possible."""
    if why := fault(scope, knob):
        column.markdown(f":small[:red[{literal(why)}]]")


def forget(scope: str) -> None:
    """Forget the boxes of `scope`, which are about to be drawn again, because only boxes that are drawn count."""
    _boxes(scope).clear()


def box(scope: str, knob: Knob, key: str) -> None:
    """Note that the knob has a box with this widget key."""
    _boxes(scope)[knob.key] = knob, key


def moved(scope: str, knob: Knob) -> None:
    """Note that the knob got a valid value elsewhere: the content of its box no longer counts, until the box is drawn
    again."""
    _boxes(scope).pop(knob.key, None)


def is_box(scope: str, knob: Knob, key: str) -> bool:
    """True if the widget with this key is the knob's box."""
    return _boxes(scope).get(knob.key) == (knob, key)


def check(scope: str) -> None:
    """Raise LabError where a box holds a number that its knob cannot have."""
    for knob, key in _boxes(scope).values():
        if why := _fault(knob, key):
            raise LabError(why)


def fault(scope: str, knob: Knob) -> str:
    """The sentence on why the knob cannot have the value in its box; empty if it can."""
    return _fault(knob, _boxes(scope)[knob.key][1])


def _fault(knob: Knob, key: str) -> str:
    value = st.session_state.get(key)
    try:
        if value is not None:  # None: the box is no longer drawn, or it may be empty and is
            knob.check(value)
    except LabError as error:
        return worded(str(error), [knob])
    return ""


def _boxes(scope: str) -> dict[str, tuple[Knob, str]]:
    every: dict[str, dict[str, tuple[Knob, str]]] = st.session_state.setdefault(KEPT, {})
    return every.setdefault(scope, {})
