"""The address of the page: every page declares its parameters as data, and only this module reads and writes it.

A parameter is a `Param`, or a field of a dataclass made by `param`. A value that does not fit is left at its default
and returned as a `Fault`; a value at its default is not written. Pages word these faults, or ignore them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode, urlsplit

import streamlit as st

from app.marked import worded
from labcore.errors import LabError, cut, listed, one_line, quoted

T = TypeVar("T")
P = TypeVar("P")

LATE_SECONDS = 5.0  # a refresh with the address of before comes no later
CHOSEN = "link:chosen"
MOST_DIGITS = 12
MOST_LISTED = 12  # options that a sentence lists


def text(value: Any) -> str:
    """A value as it stands in an address.

    >>> text(True), text(0.30000001), text(("a", "b")), text(7)
    ('1', '0.3', 'a,b', '7')
    """
    if isinstance(value, tuple | list):
        return ",".join(value)
    return f"{value:g}" if isinstance(value, bool | float) else str(value)


@dataclass(frozen=True)
class Param(Generic[T]):
    """A parameter of an address. `read` raises LabError, saying what would fit, where its text does not."""

    key: str
    default: T
    read: Callable[[str], T] = str  # type: ignore[assignment]  # of a parameter that is a text
    write: Callable[[Any], str] = text


def param(default: Any, read: Callable[[str], Any] = str, write: Callable[[Any], str] = text, key: str = "") -> Any:
    """A field of a page's dataclass that is a parameter of its address, under its own name or another `key`."""
    return field(default=default, metadata={"read": read, "write": write, "key": key})


def params(page: type) -> dict[str, Param[Any]]:
    """The parameters of a page by the names of its dataclass's fields."""
    return {each.name: Param(each.metadata["key"] or each.name, each.default, each.metadata["read"],
                             each.metadata["write"]) for each in fields(page)}


class Partly(LabError):
    """Only a part of a parameter's text fits: `kept`."""

    def __init__(self, kept: Any, why: str) -> None:
        super().__init__(why)
        self.kept = kept


@dataclass(frozen=True)
class Fault:
    """A value in an address that is not possible."""

    key: str
    said: str
    why: str
    partly: bool = False

    @property
    def sentence(self) -> str:
        """The sentence about it."""
        return worded(self.why) if self.partly else one_line(
            f"The link has {cut(self.key)}={quoted(self.said)}, which was ignored: {worded(self.why).rstrip('.')}.")


# ---- reading and writing, without a browser --------------------------------------------------------------------


def parsed(declared: Iterable[Param[Any]], said: Mapping[str, str]) -> tuple[dict[str, Any], list[Fault]]:
    """The values in an address, by key, and its faults. An empty text that does not fit is no fault."""
    known = {each.key: each for each in declared}
    values, faults = {}, []
    for key in [key for key in said if key in known]:
        try:
            values[key] = known[key].read(said[key])
        except LabError as error:
            if isinstance(error, Partly):
                values[key] = error.kept
            if said[key]:
                faults.append(Fault(key, said[key], str(error), isinstance(error, Partly)))
    return values, faults


def read(page: type[P], said: Mapping[str, str] | None = None) -> tuple[P, list[Fault]]:
    """The page that an address (by default the present one) names, and the faults of the address."""
    declared = params(page)
    values, faults = parsed(declared.values(), query() if said is None else said)
    return page(**{name: values[each.key] for name, each in declared.items() if each.key in values}), faults


def written(page: Any) -> dict[str, str]:
    """The address that opens this page again."""
    return texts({each: getattr(page, name) for name, each in params(type(page)).items()})


def texts(values: Mapping[Param[Any], Any]) -> dict[str, str]:
    """The values that are not defaults, as texts for an address."""
    return {each.key: each.write(value) for each, value in values.items() if value != each.default}


def foreign(page: type) -> list[str]:
    """The parts of the address that are no parameters of the page: ["order=shoe"]."""
    known = {each.key for each in params(page).values()}
    return [f"{key}={said}" for key, said in query().items() if said and key not in known]


# ---- the browser's address -------------------------------------------------------------------------------------


def query() -> dict[str, str]:
    """The present address.

    A refresh that began before the user's choice still has the old address; then the choice counts.
    """
    said = st.query_params.to_dict()
    for (path, key), (chosen, before, until) in st.session_state.get(CHOSEN, {}).items():
        if path == _path() and said.get(key) in before and time.monotonic() < until:
            said = _without_none({**said, key: chosen})
    return said


def get(one: Param[T]) -> T:
    """One parameter of the address; its default if it is missing or does not fit."""
    found: T = parsed([one], query())[0].get(one.key, one.default)
    return found


def put(one: Param[T], value: Any, *, default: Any = None) -> None:
    """Put a choice into the address and keep the rest. `default`: the value here without a choice."""
    usual = one.default if default is None else default
    change({one.key: None if value == usual else one.write(value)})


def turn(page: type, **values: Any) -> None:
    """New values for some of a page's fields. The others keep their present values; unknown parameters are removed.

    Two choices may be made before the page is drawn again.
    """
    now = written(replace(read(page)[0], **values))
    change({**dict.fromkeys(query()), **now})


def change(changes: Mapping[str, str | None]) -> None:
    """Change other texts of the address, as the user's choice. None removes a text."""
    url, now, chosen = st.query_params.to_dict(), query(), st.session_state.setdefault(CHOSEN, {})
    for key, said in changes.items():
        if said != now.get(key):
            _, earlier, until = chosen.get((_path(), key), (None, frozenset(), 0.0))
            before = {*(earlier if time.monotonic() < until else ()), url.get(key), now.get(key)} - {said}
            chosen[_path(), key] = said, frozenset(before), time.monotonic() + LATE_SECONDS
    replace_all({**now, **changes})


def go(said: Mapping[str, str | None]) -> None:
    """Go to another address, which ends the present view."""
    st.session_state.pop(CHOSEN, None)
    replace_all(said)


def replace_all(said: Mapping[str, str | None]) -> None:
    """Write the shown values into the address."""
    wanted = _without_none(said)
    if st.query_params.to_dict() != wanted:
        st.query_params.from_dict(wanted)


def write() -> None:
    """Set the browser's address to the one with which the page was run.

    A link from a page to itself runs it with another query, and leaves the address in the browser as it was.
    """
    st.query_params.from_dict(st.query_params.to_dict())


def address(said: Mapping[str, str] | None = None) -> str:
    """A whole address, by default the present one, to be copied."""
    return f"{(st.context.url or '').split('?')[0]}?{urlencode(query() if said is None else said, safe=',/:@')}"


def _path() -> str:
    """The key of the page, because choices on one page are not choices on another."""
    return urlsplit(st.context.url or "").path


def _without_none(said: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in said.items() if value is not None}


# ---- what parameters can be ------------------------------------------------------------------------------------


def one_of(options: Collection[str]) -> Callable[[str], str]:
    """One of some words."""
    def read(said: str) -> str:
        if said in options:
            return said
        near = get_close_matches(said, options, n=1)
        raise LabError(f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(options)}"
                       if len(options) <= MOST_LISTED else "choose another one")
    return read


def some_of(options: Collection[str]) -> Callable[[str], tuple[str, ...]]:
    """Some of some words, with commas."""
    def read(said: str) -> tuple[str, ...]:
        words = names(said)
        if wrong := [word for word in words if word not in options]:
            raise Partly(tuple(word for word in words if word in options), f"{listed(wrong)} cannot be chosen")
        return words
    return read


def names(said: str) -> tuple[str, ...]:
    """Words with commas, each once.

    >>> names("a,b,,a")
    ('a', 'b')
    """
    return tuple(dict.fromkeys(word for word in said.split(",") if word))


def whole(low: int = 0, high: int = 10**9 - 1, among: Collection[int] | None = None) -> Callable[[str], int]:
    """A whole number from `low` to `high`, or `among` some."""
    can = f"use a whole number from {low} to {high}" if among is None else f"choose one of {', '.join(map(str, among))}"

    def read(said: str) -> int:
        number = int(said) if said.isdecimal() and len(said) <= MOST_DIGITS else -1
        if not (low <= number <= high if among is None else number in among):
            raise LabError(can)
        return number
    return read


def number(low: float, high: float) -> Callable[[str], float]:
    """A number from `low` to `high`."""
    def read(said: str) -> float:
        try:
            value = float(said)
        except ValueError:
            value = low - 1
        if not low <= value <= high:  # nan too
            raise LabError(f"use a number from {low:g} to {high:g}")
        return value
    return read


def switch(said: str) -> bool:
    """On or off."""
    if said not in ("0", "1"):
        raise LabError("use 1 or 0")
    return said == "1"
