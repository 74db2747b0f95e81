"""Apply controls to a run: knobs, pause, resume, single step and stop, each at the place where it may take effect.

Controls are applied in the order of the requests. If several valid values are requested for one knob at the same place,
the last one counts, and the earlier ones are settled as superseded. Changes are events that record their place (see
`knob_history`), so a resumed run repeats the changes that came after its checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from labcore.catalog.knob import Knob, Value, shown
from labcore.catalog.mix.nearest import PARTS
from labcore.errors import LabError
from labcore.runs.knob_history import CHANGE, REFUSED, Change, Place
from labcore.runs.spec.run_spec import RunSpec, knobs_of, with_knobs
from labcore.runs.spec.session import Session
from labcore.runs.store.rows import Control
from labcore.runs.store.store import Store


class Steering:
    """The controls of one run. `paused`, `stopped` and `stepping` are the requests in force, `why` is the reason of the
    stop.

    `pending` are changes to repeat, in the order of their places. `before_change` is called before a knob is given
    another value.
    """

    def __init__(self, store: Store, run_id: str, session: Session, pending: Iterable[Change] = (),
                 before_change: Callable[[], object] = lambda: None):
        self._store, self._run_id, self._session, self._before_change = store, run_id, session, before_change
        self._pending = list(pending)
        self._begun = session.updates  # optimizer updates before the present step
        self.paused = self.stopped = self.stepping = False
        self.why = ""

    @property
    def waiting(self) -> bool:
        """True if the run is to wait where it is."""
        return self.paused and not self.stepping

    @property
    def _spec(self) -> RunSpec:
        """The spec with the values in use, which only `session.knobs` holds."""
        return replace(self._session.spec, knobs=dict(self._session.knobs))

    def between_updates(self, step: int) -> None:
        """Apply the live knobs; `step` steps are complete."""
        here = self._here(step)
        self._repeat(here)
        asked = self._store.asked(self._run_id)
        if asked:
            live = {knob.key for knob in knobs_of(self._spec.row, self._spec.task_row) if knob.effect == "live"}
            self._set([c for c in asked if c.command == "set" and c.payload["knob"] in live], here)

    def between_steps(self, step: int) -> None:
        """Apply all requests, up to the next single step or stop. `step` steps are complete."""
        self._begun = self._session.updates
        here = self._here(step)
        self._repeat(here)
        asked = self._store.asked(self._run_id)
        if asked:
            self._set([c for c in asked if c.command == "set"], here)
        for control in asked:
            if control.command != "set" and not (self.stepping or self.stopped):
                getattr(self, f"_{control.command}")(control, step)

    def within_step(self, step: int, stops: bool) -> bool:
        """Apply what may be asked in the middle of a step, after `step` whole ones: to pause, to go on, and where the
        run `stops` there, to stop. Knobs wait for their places. Returns whether a stop waits for the step's end."""
        waits = False
        for control in self._store.asked(self._run_id):
            now = {"stop": stops and not self.stopped, "step": self.waiting}.get(control.command, not self.stepping)
            if control.command != "set" and now:
                getattr(self, f"_{control.command}")(control, step)
            waits = waits or (control.command == "stop" and not stops)
        return waits

    def stepped(self, step: int) -> None:
        """Note that the requested single step has been made."""
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
        self.stopped, self.why = True, control.payload.get("why", "")
        self._store.settle(control.id, step)

    def _here(self, step: int) -> Place:
        """Where the run stands after `step` complete steps: what changes here counts first in the next one."""
        updates = self._session.updates
        return Place(step + 1, updates, int(updates == self._begun))

    def _set(self, asked: list[Control], here: Place) -> None:
        wanted = [(control.payload["knob"], control.payload["value"]) for control in asked]
        spec, reasons = agreed(self._spec, wanted)
        accepted: dict[str, list[Control]] = {}
        for control, (key, value), reason in zip(asked, wanted, reasons, strict=True):
            if reason:
                self._store.settle(control.id, here.step - 1, refused=reason,
                                   log=(REFUSED, {"knob": key, "value": value, "text": reason}))
            else:
                accepted.setdefault(key, []).append(control)
        for key, same in accepted.items():
            for control in same[:-1]:
                self._store.settle(control.id, here.step, superseded=True)
            self._change(same[-1], key, spec.knobs[key], here)

    def _change(self, control: Control, key: str, value: Value, here: Place) -> None:
        before = self._session.knobs[key]
        if value != before:
            self._before_change()
        kept = [change for change in self._pending if change.knob != key or change.place.order < here.order]
        taken_back, self._pending = len(kept) < len(self._pending), kept
        knob = next(knob for knob in knobs_of(self._spec.row, self._spec.task_row) if knob.key == key)
        change = Change(key, before, value, here, knob.name)
        self._store.settle(control.id, here.step,
                           log=(CHANGE, change.payload) if value != before or taken_back else None)
        self._session.knobs[key] = value

    def _repeat(self, here: Place) -> None:
        now = [change for change in self._pending if change.place.reached(here.step, here.update)]
        if not now:
            return
        self._pending = self._pending[len(now):]
        spec, reasons = agreed(self._spec, [(change.knob, change.value) for change in now])
        for change, reason in zip(now, reasons, strict=True):
            if reason:  # it contradicts a knob that was set after the resume
                place = {"update": change.update, "between": change.place.between}
                self._store.log(self._run_id, REFUSED, {"knob": change.knob, "value": change.value, "text": reason,
                                                        **place}, change.step)
            else:
                self._session.knobs[change.knob] = spec.knobs[change.knob]


def agreed(spec: RunSpec, wanted: Sequence[tuple[str, object]]) -> tuple[RunSpec, list[str]]:
    """`spec` with the requested knobs, and for each knob the reason if it is refused, otherwise "".

    All knobs are tried together first, because some values are only valid together. If that fails, they are checked one
    by one.
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


def stop_asked(store: Store, run_id: str) -> str:
    """Why a run that has no session yet ends, where it was asked to stop; settles the control. Else empty."""
    for control in store.asked(run_id):
        if control.command == "stop":
            store.settle(control.id, 0)
            return control.payload.get("why") or "The run was stopped before its first step."
    return ""


def unusual(spec: RunSpec) -> list[str]:
    """The algorithm's knobs that are not at their defaults, as a person writes them: ["β 0.2"]."""
    return [f"{knob.name} {shown(spec.knobs[knob.key])}" for knob in unusual_knobs(spec)]


def unusual_knobs(spec: RunSpec) -> list[Knob]:
    """The algorithm's knobs that are not at their defaults.

    A run that nobody watches has defaults of its own, which are left out as well; so are the choices of a mix, for
    which its name stands.
    """
    own = {knob.key for knob in spec.row.knobs} - {
        key for key, value in spec.kind_row.unwatched.items() if spec.knobs.get(key) == value}
    if spec.mix:
        own -= set(PARTS)
    return [knob for knob in spec.declared if knob.key in own and spec.knobs[knob.key] != knob.default]
