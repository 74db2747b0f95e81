"""The expander "More knobs": advanced knobs in groups, a search over all knobs, and a group of the knobs that have no
effect now, with the reasons.

A closed expander draws nothing, so a form of sixty knobs costs no more than the open ones. The draft holds the values,
not the widgets, so closing, searching and regrouping lose none.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import streamlit as st

from app.tokens import literal
from app.training import controls
from app.widget_state import widget_state
from labcore.catalog import inactive
from labcore.catalog.knob import GROUPS, Knob
from labcore.errors import listed

KEY, SEARCH = "more_knobs", "search_knobs"
NO_EFFECT = "no_effect"


def key_of(group: str) -> str:
    """The key of a group's fold.

    >>> key_of("kl")
    'more_knobs:kl'
    """
    return f"{KEY}:{group}"


def show(target: controls.Target, plain: Sequence[Knob], advanced: Sequence[Knob]) -> None:
    """The fold over the `advanced` knobs; the search also names `plain` ones, which stand above it."""
    more = _fold(KEY, "More knobs", _changed(target, advanced))
    if not more.open:  # most people never look
        return
    with more:
        if words := _search():
            _found(target, plain, advanced, words)
        else:
            _groups(target, advanced)


def _search() -> str:
    """The words that are searched for. They are kept while the fold is closed."""
    shown = widget_state(SEARCH, st.session_state.get(f"{SEARCH}:words", ""))

    def changed() -> None:
        st.session_state[f"{SEARCH}:words"] = shown.taken() or ""

    st.text_input("Search knobs", shown.value, key=shown.key, placeholder="Search names and help",
                  icon=":material/search:", label_visibility="collapsed", on_change=changed)
    return str(shown.value).strip()


def _found(target: controls.Target, plain: Sequence[Knob], advanced: Sequence[Knob], words: str) -> None:
    above = [knob.title for knob in plain if knob.matches(words)]
    below = [knob for knob in advanced if knob.matches(words)]
    if above:
        st.caption(literal(f"Above: {listed(above)}."))
    controls.widgets(target, below)
    if not above and not below:
        st.caption("No match. Clear the search to see all groups.")


def _groups(target: controls.Target, knobs: Sequence[Knob]) -> None:
    reasons = {knob.key: inactive.reason(knob.key, target.values) for knob in knobs}
    active = [knob for knob in knobs if not reasons[knob.key]]
    for group, title in GROUPS.items():
        if own := [knob for knob in active if knob.group == group]:
            _group(group, title, _changed(target, own), target, own)
    if idle := sorted((knob for knob in knobs if reasons[knob.key]), key=lambda knob: reasons[knob.key]):
        _group(NO_EFFECT, "No effect now", str(len(idle)), target, idle)


def _group(name: str, title: str, note: str, target: controls.Target, knobs: Sequence[Knob]) -> None:
    fold = _fold(key_of(name), title, note)
    if fold.open:
        with fold:
            controls.widgets(target, knobs)


def _fold(key: str, title: str, note: str) -> Any:
    """A fold with a `note` at the right of its title. The note is no part of the title: with another title it would be
    another fold, which is closed, and a slider in it would be lost while it is dragged."""
    st.html(f'<div class="rl-fold-note">{html.escape(note)}</div>')
    return st.expander(title, key=key, on_change="rerun")


def _changed(target: controls.Target, knobs: Sequence[Knob]) -> str:
    """The number of knobs that are not at their defaults, in words; empty if all are at their defaults."""
    count = len(controls.changed(target, knobs))
    return f"{count} changed" if count else ""
