"""A widget that shows a value stored elsewhere and reports only the user's changes.

The value goes in as the widget's own default, never through the session state: on a busy machine the browser may
mount a widget late, when the one message that would set it has been overtaken; it would then show, and send back as
if the user had chosen it, its first option or its least number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

KEPT = "held"  # one key for all: most widgets of Streamlit walk over every key of the session state


@dataclass
class WidgetState:
    """The value that a widget shows. If other code changes the value, a new generation of the widget starts from it.
    `of` are its options; other options make a new widget too.
    """

    name: str
    value: Any
    of: Any = None
    generation: int = 0

    @property
    def key(self) -> str:
        """The widget's key."""
        return f"{self.name}:{self.generation}"

    def taken(self) -> Any:
        """The user's choice, for the widget's `on_change`; the widget keeps it."""
        self.value = st.session_state[self.key]
        return self.value

    def back(self) -> None:
        """The choice was refused: the widget starts again from the value that stands."""
        self.generation += 1


def widget_state(name: str, value: Any, of: Any = None) -> WidgetState:
    """The widget called `name`, to be given `value` as its default and `key` as its key."""
    kept: dict[str, WidgetState] = st.session_state.setdefault(KEPT, {})
    found = kept.setdefault(name, WidgetState(name, value, of))
    if (found.value, found.of) != (value, of):
        found.value, found.of = value, of
        found.generation += 1
    return found
