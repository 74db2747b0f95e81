"""A run with its session built: step after step, logged, steered and checkpointed, until it ends.

The clock counts active seconds: pauses are left out, and that of a resumed run starts where its checkpoint was.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import psutil

from labcore.analysis.doctor import doctor
from labcore.analysis.doctor.finding import Change
from labcore.errors import Diverged, LabError, NotOwner
from labcore.runs import best
from labcore.runs.faults import Ended
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.knob_history import KnobHistory
from labcore.runs.spec.activity import Activity
from labcore.runs.spec.session import Keeps, Record, Session, device_of, takes_back
from labcore.runs.steering import Steering
from labcore.runs.store import thinned
from labcore.runs.store.rows import RunRow
from labcore.runs.store.store import Store
from labcore.workers.alerts import Alerts
from labcore.workers.lifeline import Dropped, Lifeline
from labcore.workers.long_step import LongStep, RunMessage, StopWatch
from labcore.workers.pictures import Pictures

CHECKPOINT_STEPS = 50
CHECKPOINT_SECONDS = 10.0
CHECKPOINT_SHARE = 20  # one that took t seconds is not followed by another within 20 t
PAUSE_POLL_SECONDS = 0.05
LOSABLE_SECONDS = 30.0  # of finished steps, at the most, that are made again where a long step is dropped
FINISHED = object()
SHOWN_AFTER_TURN = 3  # steps after a knob was turned of which all pictures are drawn

OnRecord = Callable[[str, Record, float], object]


class Clock:
    """Active seconds: those between `start` and `stop`, on top of what a run had before."""

    def __init__(self, seconds: float):
        self._before = seconds
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        return self._before + (0.0 if self._since is None else time.perf_counter() - self._since)

    def start(self) -> None:
        self._since = time.perf_counter()

    def stop(self) -> None:
        self._before, self._since = self.seconds, None

    def at_least(self, seconds: float) -> None:
        """Put the clock forward to `seconds` where it is behind."""
        self._before += max(0.0, seconds - self.seconds)


class Training:
    """One run under way. `row` is it as the store had it when it began, `step` the checkpoint it starts from.

    `stop` says whether something else asks it to stop: the run whose base it makes. It raises where the run is lost.
    """

    def __init__(self, store: Store, row: RunRow, session: Session, step: int, lifeline: Lifeline,
                 on_record: OnRecord | None, stop: Callable[[], bool], folder: Path, run_message: RunMessage):
        self.step = step
        self._store, self._row, self._session, self._folder = store, row, session, folder
        self._lifeline, self._on_record, self._stop = lifeline, on_record, stop
        self._samples, self._lines = Pictures(folder / "samples"), Pictures(folder / "lines")
        events = store.events_after(row.id)
        history = KnobHistory(row.spec, events)
        before = store.every_step(row.id, row.step)
        self._noted = {(event.step, event.payload["text"]) for event in events if event.kind == "note"}
        self._full = {text for _, text in self._noted}  # said once in a run, at whichever step
        self._doctor, _ = doctor.course(row.spec, before, events)
        self._best = best.best_of((each.step, each.metrics) for each in before if each.step <= step)
        self._alerts, since = Alerts(store, row, events), {found.rule: at for at, found in doctor.holding(events)}
        for change in self._doctor.changed_since([found for _, found in doctor.holding(events)]):  # rules may be newer
            self._report(change)
        for found in self._doctor.findings:  # it may not have been sent before the run ended
            self._alerts.take(since.get(found.rule, self._doctor.step), found)
        self._steering = Steering(store, row.id, session, history.after(step), self._mark)
        self._clock = Clock(self._seconds_at(step))
        self._updates, self._to_mark = session.updates, False  # at the last step; whether the next one is to be saved
        self._marked = {at for change in history.changes  # checkpoints that are kept longest
                        for at in (change.step - 1, change.step)}
        self._saved_step, self._saved_at, self._save_cost = -1, self._clock.seconds, 0.0
        self._unsaved: Callable[[Path], None] | None = None  # writes the best checkpoint, which waits in memory
        self._speed_since: tuple[int, float] | None = None  # experience and seconds at the step before
        self._newest: Record | None = None  # the last one, until the session is asked for another
        self._process = psutil.Process()
        self._run_message, self._long = run_message, LongStep(run_message, self._look_within)
        self._looks = self._broken = False  # whether it looks at controls within a step, or has left one in its middle
        self._told_to_stop = False  # by `stop`, which tells it once, or by a stop that waits for the end of the step
        self._shown_until = 0  # the pictures of every step up to this one are drawn

    def run(self) -> None:
        """Train to the end. Leaves by an exception: `Ended` where all went as it should."""
        try:
            self._run()
        except Exception as error:
            if isinstance(error, Diverged):
                self._report(self._doctor.diverged(error.step, str(error)))
            if not isinstance(error, NotOwner):  # the folder is another's by now
                with suppress(OSError, LabError):  # it is the first fault that is said
                    self._save_best()
            raise

    def _run(self) -> None:
        last = self._row.spec.steps
        self._clock.start()
        self._save()
        if self.step < last:
            self._apply_controls()
        for record in self._records():
            self._newest = record
            if record is None:
                self._steering.between_updates(self.step)
                continue
            self._commit(record)
            if self.step < last:
                self._apply_controls()
            else:  # nothing can take effect any more
                self._save()
                self._clock.stop()
                self._draw_newest()
        self._save()
        raise Ended("finished", self._session.finished_because)

    def _records(self) -> Iterator[Record | None]:
        """The records of the session. A step that takes long is left where the run is to end.

        Raises:
            Ended: it was left.
        """
        records = self._session.run()
        try:
            with StopWatch(self._store, self._row.id, self._lifeline) as watch:
                while True:
                    with (watch.step(), self._lifeline.droppable(lambda: self._may_drop and not self._looks),
                          self._long.step(self.step + 1)):
                        record = next(records, FINISHED)
                    if record is FINISHED:
                        return
                    if record is not None:
                        self._long.done()
                    yield cast(Record | None, record)
        except Dropped as error:
            raise self._dropped() from error

    def _dropped(self) -> Ended:
        """End a run that stopped in the middle of a step. Its complete steps are saved first."""
        self._newest = None
        self._save_whole()
        self._save_best()
        self._broken = True
        self._steering.between_steps(self.step)  # a stop is settled
        stopped = self._steering.stopped or self._told_to_stop
        return Ended("stopped" if stopped else "interrupted", self._steering.why or (
            f"The run was stopped during step {self.step + 1}, so that step was discarded: resume the run from step "
            f"{self._saved_step}."))

    def _save_whole(self) -> None:
        """Save the last whole step, in the middle of the next one; not where that has moved weights."""
        if takes_back(self._session):
            with self._session.as_recorded():
                self._save()

    @property
    def _may_drop(self) -> bool:
        """True if the step under way may be left: the one before is whole still, or what no checkpoint holds yet is
        soon made again."""
        saved = self._saved_step == self.step or self._clock.seconds - self._saved_at < LOSABLE_SECONDS
        return saved or takes_back(self._session)

    def _look_within(self, activity: Activity) -> None:
        """Apply the controls that arrive within a step: wait in its middle, or leave it by `Dropped`."""
        self._looks = True  # no signal leaves the step here, where the store is written
        try:
            self._heed()
            if self._steering.waiting and not self._ends:
                self._hold(activity)
        finally:
            self._looks = False
        if self._ends and self._may_drop:
            raise Dropped

    def _heed(self) -> None:
        """Handle the controls that arrive within a step."""
        waits = self._steering.within_step(self.step, self._may_drop)
        self._told_to_stop = self._told_to_stop or waits or self._stop()

    @property
    def _ends(self) -> bool:
        """True if the run is to end, here or after the step."""
        return self._lifeline.cut or self._steering.stopped or self._told_to_stop

    def _hold(self, activity: Activity) -> None:
        """Wait within a step while the run is paused."""
        self._clock.stop()
        try:
            self._save_whole()
            self._run_message.write(self.step + 1, f"in step {self.step + 1:,}: {activity}")
            while self._steering.waiting and not self._ends:
                time.sleep(PAUSE_POLL_SECONDS)
                self._heed()
        finally:
            self._clock.start()

    def _seconds_at(self, step: int) -> float:
        """Active seconds at a step of the run, or of its parent where it is a fork that begins there."""
        parent = self._row.spec.parent
        run_id = parent[0] if parent and parent[1] == step else self._row.id
        rows = self._store.steps_after(run_id, step - 1)[:1] if step else []
        return rows[0].seconds if rows and rows[0].step == step else 0.0

    def _commit(self, record: Record) -> None:
        """Log a step, write what there is to look at, checkpoint if it is time."""
        if record.step > self._row.step:  # beyond what was logged before a resume, time only goes forward
            self._clock.at_least(self._row.seconds)
        seconds = self._clock.seconds
        broken = next((key for key, value in record.metrics.items() if not math.isfinite(value)), None)
        if broken:
            raise Diverged(record.step, broken)
        record = replace(record, metrics=self._machine(record, seconds) | record.metrics)
        self._store.append(self._row.id, record, seconds)
        for text in record.notes:
            if (record.step, text) in self._noted:  # before the run was resumed from an earlier step
                continue
            self._store.log(self._row.id, "note", {"text": text}, record.step)
        self._examine(record)
        self.step, self._updates = record.step, self._session.updates
        self._draw(record.step, record.samples, record.line)
        if record.step <= self._shown_until:
            self._clock.stop()
            self._draw_newest()
            self._clock.start()
        if self._on_record:
            self._on_record(self._row.id, record, seconds)
        if record.step >= thinned.LONG and record.step % thinned.KEEP_EVERY == 0:
            with suppress(OSError, LabError):  # it is spare
                thinned.keep(self._store, self._row.id)
        if self._to_mark or self._due(seconds):
            self._save()
        self._compare(record)

    def _examine(self, record: Record) -> None:
        """Log what the doctor says of a step: every few steps it looks, and mostly it says nothing."""
        for change in self._doctor.take(record.step, record.metrics, self._session.knobs):
            self._report(change)

    def _report(self, change: Change) -> None:
        """Log that a finding begins or ends, and alert who wants to know."""
        self._store.log(self._row.id, doctor.EVENT, doctor.payload(change), change.step)
        if change.finding:
            self._alerts.take(change.step, change.finding)

    def _draw(self, step: int, samples: dict[str, Any] | None, line: dict[str, Any] | None) -> None:
        for pictures, content in ((self._samples, samples), (self._lines, line)):
            if content is not None and (text := pictures.write(step, content)) and (text not in self._full):
                self._full.add(text)
                self._store.log(self._row.id, "note", {"text": text}, step)

    def _draw_newest(self) -> None:
        """Draw the pictures of the newest step that were not due: somebody is looking at it, because the run waits or
        ends there, or because a knob was turned right before."""
        record, self._newest = self._newest, None
        if record is not None and record.look is not None:
            self._draw(record.step, *record.look())

    def _compare(self, record: Record) -> None:
        """Keep the checkpoint of the policy that a record measured, where it is the best so far on held-out rows: on
        the disk, or where it is too early for another one in memory until the next is written."""
        found = best.measured(record.step, record.metrics)
        if found is None or (self._best and found.rank <= self._best.rank):
            return
        self._best, self._unsaved = found, None
        if found.step == self.step and self._saved_step != self.step:
            if not self._affordable and isinstance(self._session, Keeps):
                self._unsaved = self._session.kept()
            if self._unsaved:
                return
            self._save()
        self._mark_best()

    def _mark_best(self) -> None:
        assert self._best
        checkpoint.mark_best(self._folder, self._best.step, self._best.metric, self._best.value)

    def _save_best(self) -> None:
        """Write the best checkpoint that waits in memory, and mark it."""
        if self._unsaved and self._best:
            begun = time.perf_counter()
            checkpoint.save(self._folder, self._best.step, self._unsaved, self._marked)
            self._unsaved = None
            self._mark_best()
            self._say_saved(self._best.step, time.perf_counter() - begun)

    def _machine(self, record: Record, seconds: float) -> dict[str, float]:
        """The cost of the step: speed (per second, once there is a step before it) and memory (MB)."""
        metrics: dict[str, float] = {}
        done = record.tokens + record.env_steps  # one of them is 0
        before, self._speed_since = self._speed_since, (done, seconds)
        if before and seconds > before[1] and done:
            metrics[self._row.spec.kind_row.speed] = (done - before[0]) / (seconds - before[1])
        device, torch = device_of(self._session), sys.modules.get("torch")
        if torch is not None and device is not None and device.type == "cuda":
            used: int = torch.cuda.memory_allocated(device)
        else:
            used = self._process.memory_info().rss
        return {**metrics, "memory": used / 1e6}

    def _due(self, seconds: float) -> bool:
        late = self.step - self._saved_step >= CHECKPOINT_STEPS or seconds - self._saved_at >= CHECKPOINT_SECONDS
        return late and self._affordable

    @property
    def _affordable(self) -> bool:
        """True if the newest checkpoint is so long ago that another one may take its time."""
        return self._clock.seconds - self._saved_at >= CHECKPOINT_SHARE * self._save_cost

    def _save(self) -> None:
        if self._saved_step == self.step or self._broken:
            return
        begun = time.perf_counter()
        self._save_best()
        checkpoint.save(self._folder, self.step, self._session.save, self._marked)
        self._save_cost = time.perf_counter() - begun
        self._saved_step, self._saved_at, self._to_mark = self.step, self._clock.seconds, False
        self._say_saved(self.step, self._save_cost)

    def _say_saved(self, step: int, seconds: float) -> None:
        self._store.log(self._row.id, "checkpoint", {"seconds": round(seconds, 4)}, step)

    def _mark(self) -> None:
        """Checkpoint where a knob is about to change, to fork from; in the middle of a step when that is done. What the
        change does is seen step by step."""
        self._shown_until = self.step + SHOWN_AFTER_TURN
        self._marked |= {self.step, self.step + 1}
        if self._session.updates == self._updates:
            self._save()
        else:
            self._to_mark = True

    def _apply_controls(self) -> None:
        """Apply what is asked; wait while paused; leave by `Ended` where the run is to end here."""
        if self._steering.stepping:
            self._steering.stepped(self.step)
        self._look()
        if not self._steering.waiting:
            return
        self._save()
        self._clock.stop()
        self._draw_newest()
        while self._steering.waiting:
            time.sleep(PAUSE_POLL_SECONDS)
            self._look()
        self._clock.start()

    def _look(self) -> None:
        self._steering.between_steps(self.step)
        if self._steering.stopped or self._told_to_stop or self._stop():
            self._save()
            self._draw_newest()
            raise Ended("stopped", self._steering.why or f"The run was stopped at step {self.step}.")
        if self._lifeline.cut:
            self._save()
            raise Ended("interrupted", f"The run was stopped with the lab at step {self.step}: resume it.")
