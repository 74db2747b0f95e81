"""The state of the page Runs: search, filters, groups and order in the link; the selection in the session."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import streamlit as st

from app import link
from app.lab import lab
from app.link import param
from labcore.catalog.kinds import EVERY
from labcore.errors import LabError
from labcore.runs.lists.all_runs import Shelf
from labcore.runs.lists.entries import FIELDS, GROUPS, IMPORTED, ORDERS, Entry, knobs, ordered
from labcore.runs.lists.search import names, search
from labcore.runs.store.rows import GOING, STATES

PICKED, SAID, STALE, SHOWN = "runs:picked", "runs:said", "runs:stale", "runs:shown"
GENERATION = "runs:generation"  # a table keeps its own selection under its key: a new generation starts from ours
USUAL, DELETED = "going", "deleted"  # the usual order is no field's
ALL_STATES, ALL_KINDS = (*STATES, IMPORTED), (*EVERY, IMPORTED)


@st.cache_resource(show_spinner=False)
def shelf() -> Shelf:
    """Return the shelf of all tabs, so that a run is summarised once."""
    return Shelf(lab().store)


def _order(said: str) -> str:
    return said if said == USUAL else "-" * said.startswith("-") + link.one_of(ORDERS)(said.removeprefix("-"))


def _group(said: str) -> str:
    """Read the grouping of a link: a field, or a knob by its key or its sign."""
    keys = () if said in FIELDS else names().get(said, ())
    if said not in GROUPS and len(keys) != 1:
        raise LabError("choose a field or a knob")
    return said if said in GROUPS else keys[0]


@dataclass(frozen=True)
class View:
    """The view of the list, as a link holds it.

    `order` is USUAL (running and paused runs first, then the newest), or a field, with a minus in front for descending
    order.
    """

    find: str = param("")
    states: tuple[str, ...] = param((), link.some_of(ALL_STATES), key="state")
    kinds: tuple[str, ...] = param((), link.some_of(ALL_KINDS), key="kind")
    star: bool = param(False, link.switch)
    group: str = param("", _group)
    order: str = param(USUAL, _order)
    deleted: bool = param(False, lambda said: bool(link.one_of((DELETED,))(said)), lambda on: DELETED, "view")

    @property
    def filters(self) -> int:
        """The number of filters that are on."""
        return bool(self.states) + bool(self.kinds) + self.star


def view() -> View:
    """The view of the link; what does not fit is left out."""
    return link.read(View)[0]


def left_out() -> list[str]:
    """Return the parts of the link that do not fit: ["order=shoe"]."""
    return [f"{fault.key}={fault.said}" for fault in link.read(View)[1]] + link.foreign(View)


def show_all() -> None:
    """Show the whole list, without search, filters and groups."""
    said(None)
    link.go({})


def put(**parts: Any) -> None:
    """Put parts of the view into the link."""
    said(None)
    link.turn(View, **parts)


def chosen(entries: Iterable[Entry], now: View) -> list[Entry]:
    """The entries that the view shows, in its order. Raises LabError if its search cannot be read."""
    found = [entry for entry in entries
             if (not now.states or entry.state in now.states) and (not now.kinds or entry.kind in now.kinds)
             and (entry.star or not now.star)]
    found = search(found, now.find, apart=now.deleted or now.group == "project")
    if now.order == USUAL:
        return sorted(ordered(found, "started", descending=True), key=lambda entry: entry.state not in GOING)
    return ordered(found, now.order.removeprefix("-"), now.order.startswith("-"))


def steady(found: list[Entry], now: View) -> list[Entry]:
    """The entries in the order in which they were shown before, as long as the view and the set of entries are the
    same.

    Rows that change places while somebody reads them cannot be clicked. The next visit sorts them anew.
    """
    by_id = {entry.id: entry for entry in found}
    before = st.session_state.get(SHOWN)
    if before is None or before[0] != now or set(before[1]) != set(by_id):
        st.session_state[SHOWN] = before = (now, list(by_id))
    return [by_id[run_id] for run_id in before[1]]


def groups_of(entries: Iterable[Entry]) -> list[str]:
    """Return the fields and knobs by which the entries can be grouped."""
    return [*GROUPS, *(key for key in knobs(entries) if key not in GROUPS)]


def picked() -> list[str]:
    """The ids of the selected runs."""
    picked: list[str] = st.session_state.setdefault(PICKED, [])
    return picked


def pick(run_ids: Iterable[str]) -> None:
    st.session_state[PICKED] = list(run_ids)


def said(sentence: str | None, undo: Iterable[str] = (), error: bool = False) -> None:
    """Keep the sentence about the last action, until the next one. `undo`: the runs that it deleted."""
    st.session_state[SAID] = (sentence, tuple(undo), error) if sentence else None


def done(do: Callable[..., object], *args: Any) -> None:
    """A button's callback: run the action, read the list anew, and show the error in words if there is one."""
    said(None)
    st.session_state[STALE] = True
    try:
        do(*args)
    except LabError as error:
        said(str(error), error=True)
