"""How controls reach a run: knobs, pause, resume, single step and stop, each at the place where it may take effect.

Controls are applied in the order in which they were asked, whoever asked. Of several valid values asked for one
knob at the same place the last one wins; the earlier ones are settled as superseded. Changes are events that
know their place, so a resumed run repeats those that its checkpoint had not seen yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from labcore.catalog.knob import Value
from labcore.errors import LabError
from labcore.spec.run_spec import RunSpec, knobs_of, with_knobs
from labcore.store.rows import Control, Event
from labcore.store.store import Store

# Where a change was made: after so many updates, and there between two updates of a batch or between two batches.
Place = tuple[int, int]
_WITHIN, _BETWEEN = 0, 1


class Session(Protocol):
    """What steering needs of a session: its knobs, changed in place, and how many updates it made."""

    knobs: dict[str, Any]
    updates: int


@dataclass(frozen=True)
class Change:
    """A knob that was given `value` at `place`."""

    knob: str
    value: Value
    place: Place


def timeline(events: Iterable[Event], updates: int) -> list[Change]:
    """The changes of knobs to repeat from `updates` on, in the order of their places.

    A change made after a resume stands for what the user wants from there on: it cancels the earlier ones of
    that knob which lie at or beyond its place.
    """
    changes: list[Change] = []
    for event in events:
        if event.kind == "knob":
            place = (event.payload["update"], event.payload["between"])
            changes = [c for c in changes if c.knob != event.payload["knob"] or c.place < place]
            changes.append(Change(event.payload["knob"], event.payload["to"], place))
    return sorted((c for c in changes if c.place[0] >= updates), key=lambda change: change.place)


class Steering:
    """The controls of one run. `paused`, `stopped` and `stepping` say what was asked.

    `before_change` is called before a knob is given another value.
    """

    def __init__(self, store: Store, run_id: str, spec: RunSpec, session: Session,
                 before_change: Callable[[], object] = lambda: None):
        self._store, self._run_id, self._session, self._before_change = store, run_id, session, before_change
        self._spec = replace(spec, knobs=dict(session.knobs))
        self._replay = timeline(store.events_after(run_id), session.updates)
        self.paused = self.stopped = self.stepping = False

    @property
    def waiting(self) -> bool:
        """Whether the run is to wait where it is."""
        return self.paused and not self.stepping

    def between_updates(self, step: int) -> None:
        """Apply the live knobs; `step` steps are complete."""
        self._repeat(_WITHIN, step)
        asked = self._store.asked(self._run_id)
        if asked:
            live = {knob.key for knob in knobs_of(self._spec.row, self._spec.task_row) if knob.effect == "live"}
            self._set([c for c in asked if c.command == "set" and c.payload["knob"] in live], _WITHIN, step)

    def between_steps(self, step: int) -> None:
        """Apply what is asked, up to the next single step or stop; `step` steps are complete."""
        self._repeat(_BETWEEN, step)
        asked = self._store.asked(self._run_id)
        if asked:
            self._set([c for c in asked if c.command == "set"], _BETWEEN, step)
        for control in asked:
            if control.command != "set" and not (self.stepping or self.stopped):
                getattr(self, f"_{control.command}")(control, step)

    def stepped(self, step: int) -> None:
        """Note that the single step which was asked for is made."""
        self.stepping = False
        self._store.log(self._run_id, "stepped", {}, step)

    def _pause(self, control: Control, step: int) -> None:
        self._turn(control, step, paused=True)

    def _resume(self, control: Control, step: int) -> None:
        self._turn(control, step, paused=False)

    def _turn(self, control: Control, step: int, paused: bool) -> None:
        if paused != self.paused:
            self.paused = paused
            self._store.set_state(self._run_id, "paused" if paused else "running",
                                  log=("paused" if paused else "resumed", {}))
        self._store.settle(control.id, step)

    def _step(self, control: Control, step: int) -> None:
        if not self.paused:  # a single step of a running run: make it, then wait
            self.paused = True
            self._store.set_state(self._run_id, "paused")
        self.stepping = True
        self._store.settle(control.id, step + 1)

    def _stop(self, control: Control, step: int) -> None:
        self.stopped = True
        self._store.settle(control.id, step)

    def _set(self, asked: list[Control], between: int, step: int) -> None:
        wanted = [(control.payload["knob"], control.payload["value"]) for control in asked]
        spec, reasons = agreed(self._spec, wanted)
        accepted: dict[str, list[Control]] = {}
        for control, (key, value), reason in zip(asked, wanted, reasons, strict=True):
            if reason:
                self._store.settle(control.id, step, refused=reason,
                                   log=("refused", {"knob": key, "value": value, "text": reason}))
            else:
                accepted.setdefault(key, []).append(control)
        for key, same in accepted.items():
            for control in same[:-1]:
                self._store.settle(control.id, step + 1, superseded=True)
            self._change(same[-1], key, spec.knobs[key], (self._session.updates, between), step)

    def _change(self, control: Control, key: str, value: Value, place: Place, step: int) -> None:
        before = self._spec.knobs[key]
        if value != before:
            self._before_change()
        self._replay = [c for c in self._replay if c.knob != key or c.place < place]
        knob = next(knob for knob in knobs_of(self._spec.row, self._spec.task_row) if knob.key == key)
        log = ("knob", {"knob": key, "from": before, "to": value, "update": place[0], "between": place[1],
                        "text": f"{knob.name} {shown(before)} → {shown(value)}"})
        self._store.settle(control.id, step + 1, log=log if value != before else None)
        self._put(key, value)

    def _repeat(self, between: int, step: int) -> None:
        here = (self._session.updates, between)
        now = [change for change in self._replay if change.place <= here]
        self._replay = self._replay[len(now):]
        spec, reasons = agreed(self._spec, [(change.knob, change.value) for change in now])
        for change, reason in zip(now, reasons, strict=True):
            if reason:  # it no longer goes together with what was set after the resume
                self._store.log(self._run_id, "refused", {"knob": change.knob, "value": change.value, "text": reason},
                                step)
            else:
                self._put(change.knob, spec.knobs[change.knob])

    def _put(self, key: str, value: Value) -> None:
        self._spec = replace(self._spec, knobs={**self._spec.knobs, key: value})
        self._session.knobs[key] = value


def agreed(spec: RunSpec, wanted: Sequence[tuple[str, object]]) -> tuple[RunSpec, list[str]]:
    """`spec` with the knobs that are wanted, and for each why it is refused; empty where it is not.

    Knobs that only go together are taken together; where all of them do not, each is judged in its turn.
    """
    try:
        return with_knobs(spec, wanted), [""] * len(wanted)
    except LabError:
        reasons = []
        for change in wanted:
            try:
                spec = with_knobs(spec, [change])
                reasons.append("")
            except LabError as error:
                reasons.append(str(error))
        return spec, reasons


def stop_asked(store: Store, run_id: str) -> bool:
    """Whether the run was asked to stop while it has no session yet; settles the control."""
    for control in store.asked(run_id):
        if control.command == "stop":
            store.settle(control.id, 0)
            return True
    return False


def shown(value: Value) -> str:
    """A knob's value as a person writes it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def unusual(spec: RunSpec) -> list[str]:
    """The algorithm's knobs that are not at their defaults, as a person writes them: ["β 0.2"].

    Those of a run that nobody looks at are no choice of anybody's.
    """
    own = {knob.key for knob in spec.row.knobs} - {
        key for key, value in spec.kind_row.unwatched.items() if spec.knobs.get(key) == value}
    return [f"{knob.name} {shown(spec.knobs[knob.key])}" for knob in knobs_of(spec.row, spec.task_row)
            if knob.key in own and spec.knobs[knob.key] != knob.default]
