"""What the page Runs shows: its search, filters, groups and order in the link; its selection in the session."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import streamlit as st

from app.lab import lab
from app.session import set_place
from labcore.catalog.kinds import KINDS
from labcore.errors import LabError
from labcore.shelf.entries import IMPORTED, Entry
from labcore.shelf.fields import FIELDS, GROUPS, ORDERS, knobs, ordered
from labcore.shelf.search import names, search
from labcore.shelf.shelf import Shelf
from labcore.store.rows import STATES

PICKED, SAID, STALE, SHOWN = "runs:picked", "runs:said", "runs:stale", "runs:shown"
GENERATION = "runs:generation"  # a table keeps its own selection under its key: a new generation starts from ours
NEWEST = "-started"
ALL_STATES, ALL_KINDS = (*STATES, IMPORTED), (*KINDS, IMPORTED)


@st.cache_resource(show_spinner=False)
def shelf() -> Shelf:
    """One for all tabs: what was digested once is there for all."""
    return Shelf(lab().store)


@dataclass(frozen=True)
class View:
    """How the list is looked at. `order` is a field, with a minus in front where the largest comes first."""

    find: str = ""
    states: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    star: bool = False
    group: str = ""
    order: str = NEWEST
    deleted: bool = False

    @property
    def filters(self) -> int:
        """How many kinds of filters are on."""
        return bool(self.states) + bool(self.kinds) + self.star


def view() -> View:
    """The view of the link; what does not fit is left out."""
    url = st.query_params
    order = url.get("order", NEWEST)
    return View(find=url.get("find", ""), states=_of(url.get("state", ""), ALL_STATES),
                kinds=_of(url.get("kind", ""), ALL_KINDS), star=url.get("star") == "1",
                group=_group(url.get("group", "")), order=order if order.removeprefix("-") in ORDERS else NEWEST,
                deleted=url.get("view") == "deleted")


def left_out() -> list[str]:
    """What the link says that does not fit: ["order=shoe"]."""
    fits: dict[str, Callable[[str], bool]] = {
        "find": lambda said: True, "state": lambda said: set(said.split(",")) <= {*ALL_STATES},
        "kind": lambda said: set(said.split(",")) <= {*ALL_KINDS}, "star": lambda said: said == "1",
        "group": lambda said: bool(_group(said)), "order": lambda said: said.removeprefix("-") in ORDERS,
        "view": lambda said: said == "deleted"}
    return [f"{key}={said}" for key, said in st.query_params.items()
            if said and not (key in fits and fits[key](said))]


def show_all() -> None:
    """Back to the whole list, without search, filters and groups."""
    said(None)
    st.query_params.clear()


def _of(text: str, known: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word in known)


def _group(said: str) -> str:
    """What a link groups by: a field, or a knob by its key or by its own sign; empty where it is neither."""
    keys = () if said in FIELDS else names().get(said, ())
    return said if said in GROUPS else keys[0] if len(keys) == 1 else ""


def put(key: str, value: Any, default: Any = "") -> None:
    """Put a part of the view into the link."""
    said(None)
    set_place(key, ",".join(value) if isinstance(value, (list, tuple)) else value, default)


def chosen(entries: Iterable[Entry], now: View) -> list[Entry]:
    """The entries that the view shows, in its order.

    Raises:
        LabError: its search cannot be read.
    """
    found = [entry for entry in entries
             if (not now.states or entry.state in now.states) and (not now.kinds or entry.kind in now.kinds)
             and (entry.star or not now.star)]
    found = search(found, now.find)
    return ordered(found, now.order.removeprefix("-"), now.order.startswith("-"))


def steady(found: list[Entry], now: View) -> list[Entry]:
    """The entries in the order in which they were shown before, as long as view and entries are the same.

    Rows that run past each other while somebody reads them cannot be clicked. The next visit orders them anew.
    """
    by_id = {entry.id: entry for entry in found}
    before = st.session_state.get(SHOWN)
    if before is None or before[0] != now or set(before[1]) != set(by_id):
        st.session_state[SHOWN] = before = (now, list(by_id))
    return [by_id[run_id] for run_id in before[1]]


def groups_of(entries: Iterable[Entry]) -> list[str]:
    """What the entries can be grouped by."""
    return [*GROUPS, *(key for key in knobs(entries) if key not in GROUPS)]


def picked() -> list[str]:
    """The ids of the selected runs."""
    return st.session_state.setdefault(PICKED, [])


def pick(run_ids: Iterable[str]) -> None:
    st.session_state[PICKED] = list(run_ids)


def said(sentence: str | None, undo: Iterable[str] = (), error: bool = False) -> None:
    """What the page says of the last action, until the next one. `undo`: the runs that it deleted."""
    st.session_state[SAID] = (sentence, tuple(undo), error) if sentence else None


def done(do, *args: Any) -> None:
    """A button's callback: do it, read the list anew, and say in words what went wrong if it did."""
    said(None)
    st.session_state[STALE] = True
    try:
        do(*args)
    except LabError as error:
        said(str(error), error=True)
