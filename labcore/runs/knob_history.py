"""The value of each knob at each step of a run. This is the only definition; all other code reads it here.

A run begins with the knobs of its spec. Every later change is an event "knob" at the first step that it counts in:

    step     steps are counted from 1, as records are; the checkpoint of step s is made when s is complete
    update   the optimizer updates that were made before the change
    between  1: made before the first update of that step, so it counts in the whole of it;
             0: made between two updates of its batch, so it counts in the updates that follow

So the last update of step s, what is logged and drawn of it, and its checkpoint have the changes up to s: `at(s)`. A
run that resumes from that checkpoint repeats the later ones: `after(s)`.

A change takes back those of its knob that were logged before it and count from there or later: it was made after a
resume, and is what is wanted from there on. So does an event "refused" with a place of its own: that change could not
be repeated after a resume. Rows are never logged twice, so some may hold numbers of what was taken back: `overtaken`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from labcore.catalog.knob import Value, shown
from labcore.runs.spec.run_spec import RunSpec, knobs_of
from labcore.runs.store.rows import Event

CHANGE, REFUSED = "knob", "refused"  # kinds of events


@dataclass(frozen=True)
class Place:
    """Where a change was made: `step`, `update` and `between` of its event."""

    step: int
    update: int
    between: int

    @property
    def order(self) -> tuple[int, int]:
        """The sort key of places: the order in which a run reaches them."""
        return self.step, 0 if self.between else self.update + 1

    def reached(self, step: int, updates: int) -> bool:
        """True if a run has reached this place when it makes `step`, after `updates` updates in all."""
        return self.order <= (step, updates + 1)


@dataclass(frozen=True)
class Change:
    """`knob` went from `before` to `value`, from `place` on. `name` is how people write the knob; `event` the id."""

    knob: str
    before: Value | None
    value: Value
    place: Place
    name: str
    event: int = 0

    @property
    def step(self) -> int:
        """The first step that it counts in."""
        return self.place.step

    @property
    def update(self) -> int:
        """The optimizer updates that were made before it."""
        return self.place.update

    @property
    def text(self) -> str:
        """As a person writes it: "β 0.04 → 0.2"."""
        return f"{self.name} {'?' if self.before is None else shown(self.before)} → {shown(self.value)}"

    @property
    def payload(self) -> dict[str, Any]:
        """The payload of its event."""
        return {"knob": self.knob, "from": self.before, "to": self.value, "update": self.update,
                "between": self.place.between, "text": self.text}


def _of_step(change: Change) -> tuple[str, int]:
    return change.knob, change.step


class KnobHistory:
    """The knobs of a run of `spec`, from its start on. `changes` are the changes that were not taken back, in the order
    of their places.

    Changes that cancel out (there and back while the run was paused) are left out.
    """

    def __init__(self, spec: RunSpec, events: Iterable[Event]):
        self._first = dict(spec.knobs)
        names = {knob.key: knob.name for knob in knobs_of(spec.row, spec.task_row)}
        values, changes = dict(spec.knobs), []
        for event in sorted(_standing(events), key=lambda event: _place(event).order):
            key, value = event.payload["knob"], event.payload["to"]
            if value != values.get(key):
                changes.append(Change(key, values.get(key), value, _place(event), names.get(key, key), event.id))
            values[key] = value
        self.changes: tuple[Change, ...] = tuple(changes)

    @property
    def moves(self) -> tuple[Change, ...]:
        """The changes as they are read: those of a knob that count from one step are one, from its first value there
        to its last, at the first one's place. What came back to where it was is left out where no update was made
        in between, else each change stays."""
        moves: list[Change] = []
        for _, found in groupby(sorted(self.changes, key=_of_step), _of_step):
            group = list(found)
            first, last = group[0], group[-1]
            if first.before != last.value:
                moves.append(replace(first, value=last.value))
            elif first.update != last.update:
                moves += group
        return tuple(sorted(moves, key=lambda move: move.place.order))

    def move_of(self, event: int | None) -> Change | None:
        """The move that the change of an event is part of; the change itself where it came back to where it was."""
        change = next((each for each in self.changes if each.event == event), None)
        return change and next((move for move in self.moves if _of_step(move) == _of_step(change)), change)

    def at(self, step: int | None = None) -> dict[str, Value]:
        """The knobs in the last update of `step`, and in its checkpoint; None: with every change so far."""
        return self._first | {change.knob: change.value for change in self.changes
                              if step is None or change.step <= step}

    def after(self, step: int) -> list[Change]:
        """The changes that come after the checkpoint of `step`."""
        return [change for change in self.changes if change.step > step]

    def values_of(self, knob: str) -> set[Value]:
        """All values that a knob has had; empty if the run has no such knob."""
        return {values[knob] for values in [self._first] if knob in values} | {
            change.value for change in self.changes if change.knob == knob}


def has_place(event: Event) -> bool:
    """True if an event is part of the history: a change, or one that could not be repeated."""
    return event.kind == CHANGE or (event.kind == REFUSED and "update" in event.payload)


def overtaken(events: Iterable[Event], steps: Sequence[int]) -> set[int]:
    """The `steps`, rising, that were logged before a resume from an earlier one, after which a knob changed at or
    before them.

    A step that is logged stays as it is, so these hold numbers of knobs that the run went back on.
    """
    found: set[int] = set()
    logged = 0
    for event in events:
        if has_place(event):
            found |= set(steps[bisect_left(steps, event.step):bisect_right(steps, logged)])
        logged = max(logged, event.step - 1 if has_place(event) else event.step)
    return found


def _place(event: Event) -> Place:
    return Place(event.step, event.payload["update"], event.payload["between"])


def _standing(events: Iterable[Event]) -> list[Event]:
    """The events of the changes that were not taken back."""
    kept: list[Event] = []
    for event in events:
        if has_place(event):
            key, place = event.payload["knob"], _place(event)
            if event.kind == CHANGE:
                kept = [*(each for each in kept if each.payload["knob"] != key or _place(each).order < place.order),
                        event]
            else:
                kept = [each for each in kept if each.payload["knob"] != key or _place(each) != place]
    return kept
