"""The arguments of an environment as a form: what its class takes, with its own defaults."""

from __future__ import annotations

from functools import partial
from typing import Any

import streamlit as st

from app.draft import Draft
from app.session import show_error
from app.widget_state import WidgetState, widget_state
from labcore.classic.envs import arguments
from labcore.classic.envs.own_modules import named
from labcore.errors import LabError

KEY = "env_args"
MOST = 12  # fields of a form


def form(draft: Draft) -> None:
    """Draw a field for each argument that the environment's class takes; none if it takes no arguments or is not known
    yet.

    Only classes that Gymnasium has registered are inspected, so a typed name imports nothing.
    """
    offered = {name: value for name, value in arguments.offered(named(draft.fields["task"])[1]).items()
               if value is None or isinstance(value, (bool, int, float, str))}
    if not offered:
        return
    try:
        given = arguments.parse(str(draft.values[KEY]))
    except LabError:
        return  # the field with the text says what is wrong with it
    changed = len(given)
    with st.expander(f"Arguments of the world{f' · {changed} changed' if changed else ''}"):
        for name, usual in [*offered.items()][:MOST]:
            _field(draft, name, usual, given.get(name, usual))


def _field(draft: Draft, name: str, usual: Any, value: Any) -> None:
    shown = widget_state(f"{KEY}:{draft.knob_scope}:{name}", value if isinstance(usual, bool) else _text(value))
    common: dict[str, Any] = {"key": shown.key, "on_change": partial(_changed, draft, name, usual, shown)}
    if isinstance(usual, bool):
        st.toggle(name, value=bool(value), **common)
    else:
        st.text_input(name, value=_text(value), placeholder=_text(usual) or "none", **common)


def _text(value: Any) -> str:
    """A value as its field has it.

    >>> _text("8x8"), _text(9.8), _text(None)
    ('8x8', '9.8', '')
    """
    return "" if value is None else arguments.word(value)


def _changed(draft: Draft, name: str, usual: Any, shown: WidgetState) -> None:
    """Write an argument into the knob; one at its default, or emptied, is left out."""
    value = shown.taken()
    try:
        given = arguments.parse(str(draft.values[KEY]))
        given[name] = value if isinstance(usual, bool) else arguments.value(value)
        if given[name] == usual or value == "":
            del given[name]
        draft.values[KEY] = arguments.written(given)
    except LabError as error:
        show_error(str(error))
        shown.back()
