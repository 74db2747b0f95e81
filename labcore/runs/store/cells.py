"""Types of the store's cells, checked when they are read, because the file may have been edited by hand.

A column names one of these types; a payload is the JSON in one. `steps` has far more rows than all other tables, so
its cells are checked column by column (`labcore.runs.store.steps`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from labcore.errors import quoted
from labcore.runs.files.untrusted import whole
from labcore.runs.store.rows import SEVERITIES, STATES, Garbled

EXACT = 2**53  # whole numbers up to it are floats too
MOST_DIGITS = 17  # of a whole number, its sign included
LAST_SECOND = 253_402_300_799  # of the year 9999, the last in Python's calendar


class Cell(sa.TypeDecorator[Any]):
    """A column whose values are checked. Raises Garbled at a row with another one."""

    impl: Any = sa.Text
    cache_ok = True

    def fits(self, value: Any) -> bool:
        """True if the lab can have written a value that is there."""
        raise NotImplementedError

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> Any:
        if value is not None and not self.fits(value):
            raise Garbled(f"a row in it has {quoted(value)} in a place for {self.__doc__}")
        return value


class Name(Cell):
    """a name"""

    # Without half characters, which no database keeps, and without NUL, which PostgreSQL cannot keep.
    impl, cache_ok = sa.String, True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        return whole(value).replace("\0", "\N{REPLACEMENT CHARACTER}") if value else value

    def fits(self, value: Any) -> bool:
        return isinstance(value, str)


class Words(Name):
    """a text"""

    impl, cache_ok = sa.Text, True


class State(Name):
    """the state of a run"""

    cache_ok = True

    def fits(self, value: Any) -> bool:
        return value in STATES


class Whole(Cell):
    """a count"""

    impl, cache_ok, most = sa.Integer, True, 2**31

    def fits(self, value: Any) -> bool:
        return type(value) is int and 0 <= value < self.most


class Number(Whole):
    """the number of a run"""

    cache_ok = True

    def fits(self, value: Any) -> bool:
        return type(value) is int and abs(value) < self.most  # below 0 it is the place in a sweep


class Process(Whole):
    """the number of a process"""

    cache_ok = True

    def fits(self, value: Any) -> bool:
        return type(value) is int  # whichever it is, `process.gone` finds out whether it lives


class Seconds(Cell):
    """a time"""

    impl, cache_ok = sa.Double, True

    def fits(self, value: Any) -> bool:
        return is_number(value) and abs(value) <= LAST_SECOND


def is_number(value: Any) -> bool:
    """True if it is a finite number; a whole one may be as large as floats count exactly."""
    return abs(value) <= EXACT if type(value) is int else type(value) is float and math.isfinite(value)


# What a part of a payload must be where it is there, whatever the event. A `value` that was refused may be anything.
_PARTS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("text", "run", "base", "knob", "rule", "verdict", "evidence", "fix", "metric", "why"),
                    lambda value: isinstance(value, str)),
    "severity": SEVERITIES.__contains__, "holds": lambda value: isinstance(value, bool),
    "between": lambda value: value in (0, 1), "to": lambda value: isinstance(value, str | bool) or is_number(value),
    **dict.fromkeys(("update", "began"), lambda value: type(value) is int and 0 <= value <= EXACT)}
_REFUSED = ("knob", "update", "between")
_HOLDS = ("rule", "holds", "verdict", "evidence", "fix")


def sound(kind: str, payload: Any) -> bool:
    """True if an event of this kind can have this payload: the parts that the lab reads are there, each of its kind."""
    if not isinstance(payload, Mapping):
        return False
    needed = {"knob": (*_REFUSED, "to"), "refused": _REFUSED if "update" in payload else (),
              "doctor": _HOLDS if payload.get("holds") else ("rule", "holds"),
              "rung": ("value", "kept", "text"), "set": ("knob", "value")}.get(kind, ())
    return all(key in payload for key in needed) and (kind != "rung" or is_number(payload["value"])) and all(
        _PARTS[key](value) for key, value in payload.items() if key in _PARTS)


def payload_of(text: str, kind: str) -> dict[str, Any]:
    """The payload of an event or a command in a row. Raises Garbled where it cannot be one."""
    found: dict[str, Any] = json.loads(text)
    if not sound(kind, found):
        raise Garbled(f"the payload of an entry {quoted(kind)} cannot be read")
    return found


def check_numbers(*columns: Collection[Any], missing: bool = True) -> None:
    """Raise Garbled unless all of these are finite numbers, or None where one may be `missing`. Fast, for many rows."""
    kinds = _NUMBERS | {type(None)} if missing else _NUMBERS
    for column in columns:
        if not {*map(type, column)} <= kinds or math.inf in column or -math.inf in column:
            raise Garbled("a number of a step cannot be read")


def metrics_of(texts: Sequence[str]) -> list[dict[str, float]]:
    """The metrics in cells of steps. They are read as one text: faster, and their names are there once."""
    try:
        found: list[dict[str, float]] = _METRICS.decode(f"[{','.join(texts)}]")
    except TypeError as error:  # bytes where text was
        raise Garbled("the metrics of a step cannot be read") from error
    if len(found) != len(texts) or not all(isinstance(each, dict) for each in found):
        raise Garbled("the metrics of a step cannot be read")
    check_numbers(*(each.values() for each in found), missing=False)
    return found


def _count(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise Garbled(f"a metric of a step has {len(digits):,} digits")
    return int(digits)


def _no_number(word: str) -> float:
    raise Garbled(f"a metric of a step is {word}")


_NUMBERS = {int, float}
_METRICS = json.JSONDecoder(parse_int=_count, parse_constant=_no_number)
