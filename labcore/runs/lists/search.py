"""The search over runs: `grpo beta>0.05 -failed tag=paper "a note"`. All terms must hold.

A word is looked for in a run's title, id, algorithm, task, model, state, project, tags and note; `name=value` compares
a field or a knob as the run was started with it, by its key or its sign (`β>0.05`); a minus in front of a term negates
it. Left out: or, and brackets.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from functools import cache
from operator import eq, ge, gt, le, lt, ne
from typing import Any

from labcore.catalog.metrics import METRICS
from labcore.errors import LabError, quoted
from labcore.runs.lists.entries import FIELDS, Entry, value
from labcore.runs.spec.model_names import name_of_model
from labcore.runs.spec.run_spec import every_knob
from labcore.runs.store.rows import APART

Test = Callable[[Entry], bool]

_OPERATORS = {"<=": le, ">=": ge, "!=": ne, "=": eq, "<": lt, ">": gt}
_SPACED = re.compile(r"\s*(<=|>=|!=|=|<|>)\s*")
_TERM = re.compile(r'-?(?:[^\s"]|"[^"]*")+')
_PARTS = re.compile(r'(-?)([\w/.]+)(<=|>=|!=|=|<|>)(.*)', re.DOTALL)
_NUMBER = re.compile(r"#\d+$")  # of a run, at the end of its title: #3 is not #30
_WORDS = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
_SWITCHES: dict[float | None, bool] = {1.0: True, 0.0: False}


def parse(query: str) -> Test:
    """The test that a query asks for; an empty one is passed by every run. Raises LabError if a quote is not closed, a
    name is unknown, or a value cannot be compared in this way."""
    if query.count('"') % 2:
        raise LabError(f"The search {quoted(query)} opens a quote that it does not close: write \"two words\".")
    parts = re.split(r'("[^"]*")', query)
    joined = "".join(part if part.startswith('"') else _SPACED.sub(r"\1", part) for part in parts)
    tests = [_term(term) for term in _TERM.findall(joined)]
    return lambda entry: all(test(entry) for test in tests)


def search(entries: Iterable[Entry], query: str, apart: bool = False) -> list[Entry]:
    """The entries that pass. Runs of lessons and of studies pass only where `apart` is set, or where the query names
    their project, their sweep or one of them by its id. Raises LabError as `parse`."""
    test, asked = parse(query), query.casefold().replace(" ", "")
    return [entry for entry in entries if test(entry) and (
        apart or entry.project not in APART or "project" in asked or any(
            name and name.casefold() in asked for name in (entry.id, entry.sweep)))]


@cache
def names() -> dict[str, tuple[str, ...]]:
    """All names that can be compared: the fields, then every knob of every algorithm and task. A sign stands for all
    knobs that have it."""
    found: dict[str, tuple[str, ...]] = {key: (key,) for key in FIELDS}
    found |= {key: (key,) for key in every_knob()}
    for key, knob in every_knob().items():
        if knob.sign:
            found[knob.sign] = (*found.get(knob.sign, ()), key)
    return found


def _term(term: str) -> Test:
    if not (parts := _PARTS.fullmatch(term)):
        return _word(term)
    minus, name, operator, wanted = parts.groups()
    key = {"tags": "tag", "notes": "note", "run": "id", "fork": "parent"}.get(name, name)
    if key not in (known := names()):
        near = ["last"] if name in METRICS else difflib.get_close_matches(name, tuple(known), n=1)
        hint = f"{near[0]}{operator}{wanted or '0.1'}" if near else "algorithm=grpo or beta>0.05"
        raise LabError(f"The search {term} asks for {quoted(name)}, which is neither a knob nor a field: try {hint}.")
    wanted = wanted.replace('"', "")
    if not wanted:
        raise LabError(f"The search {term} lacks a value: write for example {name}{operator}0.1.")
    test = _comparison(term, known[key], operator, wanted)
    return (lambda entry: not test(entry)) if minus else test


def _word(term: str) -> Test:
    minus, word = term.startswith("-") and len(term) > 1, term.removeprefix("-") if len(term) > 1 else term
    word = word.replace('"', "").casefold()
    whole = re.compile(rf"{re.escape(word)}(?!\d)") if _NUMBER.search(word) else None
    return lambda entry: bool(whole.search(_text(entry)) if whole else word in _text(entry)) != minus


def _text(entry: Entry) -> str:
    return "\n".join((entry.title, entry.id, entry.algorithm, entry.task, entry.model,
                      name_of_model(entry.model), entry.state, *entry.keys, *entry.tags,
                      entry.note, entry.sweep or "", entry.project)).casefold()


def _comparison(term: str, keys: tuple[str, ...], operator: str, wanted: str) -> Test:
    """A run without a value of any of the keys passes no comparison but !=."""
    number, compare = _number(wanted), _OPERATORS[operator]
    if operator not in ("=", "!=") and number is None:
        raise LabError(f"The search {term} compares with {quoted(wanted)}, which is not a number: write for example "
                       f"{keys[0]}>0.05.")

    def passes(entry: Entry) -> bool:
        found = [each for key in keys for each in _values(entry, key)]
        if operator == "!=":
            return not any(_equal(each, wanted, number) for each in found)
        if operator == "=":
            return any(_equal(each, wanted, number) for each in found)
        numbers = [float(each) for each in found if isinstance(each, (int, float))]
        return number is not None and any(compare(each, number) for each in numbers)

    return passes


def _values(entry: Entry, key: str) -> tuple[Any, ...]:
    """The values of the run under the name: tags one by one; the id with the run's name; algorithm, task and model both
    as key and as label."""
    found = value(entry, key)
    if key == "id":
        return (found, entry.id)
    if key in ("algorithm", "task"):
        return (found, entry.keys[("algorithm", "task").index(key)])
    if key == "model" and found:
        return (found, name_of_model(found))
    return found if isinstance(found, tuple) else () if found is None else (found,)


def _equal(found: Any, wanted: str, number: float | None) -> bool:
    if isinstance(found, bool):
        return found is _WORDS.get(wanted.casefold(), _SWITCHES.get(number))
    if isinstance(found, (int, float)):
        return number is not None and abs(found - number) <= 1e-9 * max(abs(found), abs(number))
    return str(found).casefold() == wanted.casefold()


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
