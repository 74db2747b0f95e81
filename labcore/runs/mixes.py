"""The mixes that the user has saved: a name, the row that it began from, and the knobs that are not at their defaults.

One JSON file in the lab's folder, each time written as a whole. Entries that this lab cannot use are named, never
dropped: a file that cannot be read is left as it is, and an entry of a newer version stays in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from labcore.catalog.knob import Value, suggestion
from labcore.catalog.llm.pretrained import SCRATCH
from labcore.catalog.mix import row as mixed
from labcore.catalog.task import Task
from labcore.errors import LabError, one_line, quoted
from labcore.runs.files.paths import MIXES
from labcore.runs.files.user_json import Kept
from labcore.runs.spec.run_spec import RunSpec, knobs_of

_KEPT = Kept(MIXES, "mixes", list, "Your saved mixes")
_OF_ONE_MACHINE = ("reward_function", "reward_weights", "judge_url")  # knobs that a mix cannot contain


@dataclass(frozen=True)
class Mix:
    """A saved mix; `algorithm` is the row that it began from."""

    name: str
    algorithm: str
    knobs: Mapping[str, Value]


def path() -> Path:
    """The file that holds them."""
    return _KEPT.path


def of_values(name: str, algorithm: str, values: Mapping[str, Value], task: Task, weights: str = SCRATCH) -> Mix:
    """A mix of the knobs `values` of a run on `task`: knobs at their defaults are not part of it (`weights` as for
    `knobs_of`). Raises LabError if the name or a value is not allowed, or the row is not one of choices."""
    row = mixed.with_every_knob(algorithm)
    own = {knob.key for knob in row.knobs}.difference(_OF_ONE_MACHINE)
    knobs = {knob.key: knob.check(values[knob.key]) for knob in knobs_of(row, task, weights)
             if knob.key in own and knob.key in values and values[knob.key] != knob.default}
    return Mix(mixed.check_name(name), algorithm, knobs)


def of_spec(spec: RunSpec, name: str) -> Mix:
    """The mix of a run under a name. Raises LabError as `of_values`, or if the run is not one of a language model."""
    if not mixed.can_be_mixed(spec.row):
        raise LabError(f"{spec.row.label} has no choices to mix: give a run of a language model, such as one of grpo "
                       "or dpo.")
    return of_values(name, spec.algorithm, spec.knobs, spec.task_row, spec.weights)


def saved() -> tuple[list[Mix], list[str]]:
    """The mixes in the order in which they were saved, and a sentence for each entry that cannot be used. Raises
    LabError if the file cannot be read."""
    found, faults = [], []
    for number, entry in enumerate(_KEPT.read(), 1):
        try:
            found.append(_mix(entry))
        except LabError as error:
            faults.append(one_line(f"Entry {number} of {path().name} is left out and kept: {error}"))
    return found, faults


def find(name: str) -> Mix:
    """The saved mix of that name, whether written in capital or small letters. Raises LabError if there is no such mix,
    or the file cannot be read."""
    there, _ = saved()
    for mix in there:
        if _same(mix.name, name):
            return mix
    known = [mix.name for mix in there]
    nearest = suggestion(name, known) if known else "none is saved yet."
    raise LabError(f"There is no saved mix {quoted(name)}: {nearest}")


def save(mix: Mix, replace: bool = False) -> None:
    """Save it; with `replace` in place of the one that has its name. Raises LabError if the name is taken, or the file
    cannot be read or written."""
    with _KEPT.changing() as entries:
        places = _places(entries, mix.name)
        if places and not replace:
            raise LabError(f"There is a mix {quoted(entries[places[0]]['name'])} already: choose another name, or "
                           "delete that one first.")
        if places:
            entries[places[0]] = asdict(mix)
        else:
            entries.append(asdict(mix))


def rename(name: str, new: str) -> None:
    """Give a saved mix another name; runs that were made from it keep the old one. Raises LabError if there is none of
    that name, the new name is not allowed or is taken, or the file cannot be written."""
    found = find(name)
    mixed.check_name(new)
    with _KEPT.changing() as entries:
        if not _same(name, new) and _places(entries, new):
            raise LabError(f"There is a mix {quoted(new)} already: choose another name.")
        for place in _places(entries, found.name):
            entries[place]["name"] = new


def delete(name: str) -> None:
    """Delete a saved mix; runs that were made from it stay as they are. Raises LabError if there is none of that name,
    or the file cannot be written."""
    found = find(name)
    with _KEPT.changing() as entries:
        for place in _places(entries, found.name):
            del entries[place]


def _mix(entry: Any) -> Mix:
    """An entry of the file as a mix. Raises LabError where this lab cannot use it."""
    try:
        name, algorithm, knobs = (entry[key] for key in ("name", "algorithm", "knobs"))
        known = {knob.key: knob for knob in mixed.with_every_knob(algorithm).knobs}
        if unknown := [key for key in knobs if key not in known]:
            raise LabError(f"this lab has no knob {quoted(unknown[0])}.")
        return Mix(mixed.check_name(name), algorithm, {key: known[key].check(value) for key, value in knobs.items()})
    except (TypeError, KeyError, AttributeError) as error:
        raise LabError("it has no name, algorithm and knobs.") from error


def _same(name: str, other: Any) -> bool:
    return isinstance(other, str) and name.casefold() == other.casefold()


def _places(entries: list[Any], name: str) -> list[int]:
    return [place for place, entry in enumerate(entries) if isinstance(entry, dict) and _same(name, entry.get("name"))]
