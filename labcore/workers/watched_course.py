"""The state of one watched run while its lines are read: its counters, its files and its alerts."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from labcore.analysis.doctor import doctor
from labcore.analysis.doctor.doctor import Doctor
from labcore.catalog.knob import Value
from labcore.errors import LabError
from labcore.runs.files import called
from labcore.runs.files.paths import run_folder
from labcore.runs.knob_history import KnobHistory
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.store import thinned
from labcore.runs.store.rows import Event
from labcore.runs.store.store import Store
from labcore.workers.alerts import Alerts
from labcore.workers.pictures import Pictures


@dataclass
class Course:
    """A run with its newest row, its settings in force and its metrics, and the doctor that examines it."""

    id: str
    spec: RunSpec
    folder: Path
    doctor: Doctor
    samples: Pictures
    step: int = 0  # the newest
    tokens: int = 0
    env_steps: int = 0
    seconds: float = 0.0
    knobs: dict[str, Value] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    alerts: Alerts | None = None
    over: bool = False  # it was ended, and may be taken up again
    kept: int = 0  # the step at which its thinned rows were kept
    called: dict[str, str] | None = None  # as in its file, once that was read

    @property
    def begun(self) -> int:
        """The step after which the run begins: 0, or the step at which a fork left its parent."""
        return self.spec.parent[1] if self.spec.parent else 0

    def call(self, names: Mapping[str, str]) -> None:
        """Save the trainer's names of the lab's metrics, for the pages."""
        if self.called is None:
            self.called = called.read(self.id)
        if not names.items() <= self.called.items():
            self.called |= names
            called.write(self.folder, self.called)

    def keep_thinned(self, store: Store) -> None:
        """Keep the thinned rows of a long run, so that its page opens at once."""
        if self.step >= thinned.LONG and self.step - self.kept >= thinned.KEEP_EVERY:
            self.kept = self.step
            with suppress(OSError, LabError):  # it is spare
                thinned.keep(store, self.id)

    def changed(self, step: int) -> None:
        """Delete the thinned rows if the row of `step`, which changed, is not the newest."""
        if step < self.step:
            thinned.forget(self.id)
            self.kept = 0


def opened(store: Store, run_id: str) -> tuple[Course, list[Event]]:
    """Load a run that exists already, and its events."""
    row, events = store.run(run_id), store.events_after(run_id)
    examined, _ = doctor.course(row.spec, store.every_step(run_id, row.step), events)
    last = next(iter(store.last_steps(run_id, row.step, 1)), None)
    at = row.spec.parent[1] if row.spec.parent else 0
    folder = run_folder(run_id)
    return Course(run_id, row.spec, folder, examined, Pictures(folder / "samples"), last.step if last else at,
                  last.tokens if last else 0, last.env_steps if last else 0, last.seconds if last else 0.0,
                  KnobHistory(row.spec, events).at(), store.logged(run_id)), events
