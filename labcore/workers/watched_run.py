"""Convert the lines of a watched run to rows, events and samples in the store.

Lines and read positions are stored in one transaction. A step is written once; metrics that arrive later are added if
the step lacks them. If a step is sent again with other numbers, the trainer resumed from an earlier checkpoint, so a
fork starts. Each writer of a run (a process that sends to it) continues in the run that it wrote to last, so two
writers do not cause a fork at every line.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from labcore.analysis.doctor import doctor, finding
from labcore.analysis.doctor.doctor import Doctor
from labcore.catalog import watch
from labcore.catalog.kinds import WATCH
from labcore.catalog.knob import Value
from labcore.runs.files import atomic
from labcore.runs.files.paths import made, run_folder
from labcore.runs.knob_history import Change, Place
from labcore.runs.spec.run_spec import RunSpec, knobs_of
from labcore.runs.spec.session import Record
from labcore.runs.store.cells import EXACT, LAST_SECOND
from labcore.runs.store.store import Store
from labcore.runs.store.watched import Taking
from labcore.watch.converting import names
from labcore.watch.converting.samples import samples_of
from labcore.watch.converting.spool import Line
from labcore.workers import watched_course
from labcore.workers.alerts import Alerts
from labcore.workers.pictures import Pictures
from labcore.workers.watched_course import Course

MOST_STEP = 2**31 - 2  # a setting may change at the step after it, which the store can still count
MOST_FORKS = 20
MOST_NAMES = 1000  # metrics of one run
MOST_SAID = 100  # reported errors
LONGEST, LONGEST_KEY = 500, 100  # characters of a note, and of the key of an error
ENDS = ("finished", "stopped", "failed")


class WatchedRun:
    """The runs of the watched folder `name`. It is created again after a failed transaction."""

    def __init__(self, store: Store, name: str):
        self.name = name
        self._store = store
        self._courses: dict[str, Course] = {}
        self._found: list[tuple[Course, finding.Change]] = []  # findings of the doctor that wait to be sent
        self._taking: Taking

    @property
    def going(self) -> bool:
        """True if any of its runs has not ended."""
        return not all(course.over for course in self._courses.values())

    def take(self, lines: Sequence[Line]) -> dict[str, Any]:
        """Store some lines, all of them or none. Returns the read position after them.

        Raises:
            NoSuchRun: the run is in the trash.
            LabError: the store cannot be written.
        """
        with self._store.taking(self.name) as self._taking:
            place = self._taking.place
            for line in merged(lines):
                if line.said.get("kind") == "run" and line.writer not in place.get("deleted", [line.writer]):
                    for key in place.keys() - {"at"}:  # a new process reuses the id of a deleted run
                        del place[key]
                if "deleted" not in place:
                    self._take(line)
            place.setdefault("at", {}).update({line.file: line.end for line in lines})
        self._alert()
        for course in self._courses.values():
            course.keep_thinned(self._store)
        return place

    def take_up(self) -> None:
        """Continue a run whose trainer kept running while the lab was closed. Raises LabError as `take`."""
        with self._store.taking(self.name) as self._taking:
            run_id = self._taking.place.get("newest")
            if run_id and self._taking.mine(run_id):
                self._courses[run_id] = self._opened(run_id)
        self._alert()

    def _alert(self) -> None:
        """Send the doctor's findings. This happens after the transaction, because alerts write to the store."""
        for course, change in self._found:
            if course.alerts is None:
                course.alerts = Alerts(self._store, self._store.run(course.id), self._store.events_after(course.id),
                                       self.name)
            if change.finding:
                course.alerts.take(change.step, change.finding)
        self._found = []

    def end(self, state: str, text: str) -> None:
        """End the running runs of the folder."""
        with self._store.taking(self.name) as self._taking:
            for course in self._courses.values():
                if not course.over:
                    self._taking.end(course.id, state, text)
        for course in self._courses.values():
            course.over = True

    def keep(self, at: Mapping[str, int]) -> dict[str, Any]:
        """Store the read positions of the remaining files. Returns the whole read position."""
        with self._store.taking(self.name) as taking:
            taking.place["at"] = dict(at)
        return taking.place

    # ---------------------------------------------------------------- lines

    def _take(self, line: Line) -> None:
        """Process a line. A line that causes an error is skipped and reported; otherwise it would block later lines.
        """
        try:
            self._line(line)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            traceback.print_exc()
            self._say(line, f"a line of {str(line.said.get('kind'))[:40]} cannot be used ({type(error).__name__}) and "
                      "is skipped", f"error {type(error).__name__}")

    def _line(self, line: Line) -> None:
        reads: dict[str, Callable[[Line], None]] = {
            "run": self._begin, "numbers": self._numbers, "rollouts": self._rollouts, "config": self._config,
            "event": self._event, "dropped": self._dropped, "end": self._end}
        if line.fault:
            self._say(line, line.fault, "fault")
        elif (kind := line.said["kind"]) in reads:
            reads[kind](line)
        else:
            self._say(line, f"lines of the unknown kind {kind[:40]!r} are skipped", f"kind {kind}")

    def _course(self, line: Line) -> Course | None:
        """Return the run that the writer of a line writes to; None if the run was deleted."""
        place = self._taking.place
        of = place.setdefault("runs", {})  # the last one is the newest writer
        if line.writer in of and line.writer != next(reversed(of)) and "writers" not in place.setdefault("said", []):
            place["said"].append("writers")
            self._taking.log(of[line.writer], "note", {"text": (
                "Two processes write to this run at the same time: give each of them its own run_id.")}, 0)
        run_id = of.get(line.writer) or place.get("newest") or self._create(line)
        of[line.writer] = place["newest"] = run_id
        course = self._courses.get(run_id)
        if course is None or course.over:
            if not self._taking.mine(run_id):
                place["deleted"] = [*of]
                return None
            course = self._courses[run_id] = course or self._opened(run_id)
            course.over = False
        return course

    def _create(self, line: Line, parent: Course | None = None, step: int = 0) -> str:
        """Create a run from its first line, or a fork of `parent` after `step`."""
        if parent:
            spec = replace(parent.spec, parent=(parent.id, step), knobs=parent.knobs)
        else:
            spec = spec_of(line.said if line.said.get("kind") == "run" else {}, self.name)
        run_id = self._taking.create(spec)
        folder = made(run_folder(run_id))
        atomic.write_text(folder / "spec.json", spec.to_json())
        course = Course(run_id, spec, folder, Doctor(spec), Pictures(folder / "samples"), step, knobs=dict(spec.knobs))
        if parent:
            course.tokens, course.env_steps, course.seconds = parent.tokens, parent.env_steps, parent.seconds
        self._courses[run_id] = course
        return run_id

    def _opened(self, run_id: str) -> Course:
        """Load a run that exists already. Its alerts may not have been sent before it ended."""
        course, events = watched_course.opened(self._store, run_id)
        self._found += [(course, finding.Change(at, each.rule, each)) for at, each in doctor.holding(events)]
        return course

    def _begin(self, line: Line) -> None:
        begun = bool(self._taking.place.get("newest"))
        course = self._course(line)
        pid, host = line.said.get("pid"), line.said.get("host")
        self._taking.place["process"] = [pid, host[:LONGEST]] if type(pid) is int and isinstance(host, str) else None
        if course and begun:  # the trainer was restarted, perhaps with other settings
            self._set(course, names.settings(_mapping(line.said.get("config"))), course.step + 1)

    def _config(self, line: Line) -> None:
        if course := self._course(line):
            step = self._step(line) if line.said.get("step") is not None else course.step + 1
            if step is not None:
                self._set(course, names.settings(_mapping(line.said.get("values"))), step)

    def _set(self, course: Course, values: Mapping[str, Value], step: int) -> None:
        """Log the settings that change from `step` on."""
        titles = {knob.key: knob.name for knob in knobs_of(course.spec.row, course.spec.task_row)}
        for key, value in values.items():
            if course.knobs.get(key) != value:
                change = Change(key, course.knobs.get(key), value, Place(max(1, step), course.step, 1),
                                titles.get(key, key))
                self._taking.log(course.id, "knob", change.payload, max(1, step))
                course.knobs[key] = value

    def _event(self, line: Line) -> None:
        if course := self._course(line):
            said = line.said.get("step")
            step = said if type(said) is int and 0 <= said <= MOST_STEP else course.step
            self._taking.log(course.id, "note", {"text": str(line.said.get("text", ""))[:LONGEST]}, step)

    def _dropped(self, line: Line) -> None:
        if course := self._course(line):
            counts = " and ".join(f"{count:,.0f} {kind}" for kind, each in _mapping(line.said.get("counts")).items()
                                  if (count := names.number(each)) is not None)
            self._taking.log(course.id, "note", {"text": f"The trainer dropped {counts}: "
                                                 f"{line.said.get('why', '')}"[:LONGEST]}, course.step)

    def _end(self, line: Line) -> None:
        if course := self._course(line):
            state = line.said.get("state", "finished")
            self._taking.end(course.id, state if state in ENDS else "stopped",
                             str(line.said.get("message") or "")[:LONGEST])
            course.over = True

    def _rollouts(self, line: Line) -> None:
        if (course := self._course(line)) and (step := self._step(line)) is not None:
            found = samples_of(line.said, max(1, step))
            if found:
                if full := course.samples.write(max(1, step), found):
                    self._say(line, full.rstrip("."), "full")
            else:
                self._say(line, "a line of rollouts without completions was skipped", "rollouts")

    # ---------------------------------------------------------------- numbers

    def _numbers(self, line: Line) -> None:
        course, step = self._course(line), self._step(line)
        if course is None or step is None:
            return
        found = names.numbers_of(_mapping(line.said.get("numbers")))
        if found.strange:
            self._say(line, f"the metric {found.strange[0]} is not a number at step {step:,} and is skipped",
                      f"strange {found.strange[0]}")
        metrics = self._known(line, course, found.metrics)
        course.call({key: name for key, name in found.called.items() if key in metrics})
        if step == 0:  # the lab counts from 1: metrics of step 0 are drawn with the first step
            self._taking.place.setdefault("zero", {}).update(_finite(metrics))
            return
        finite = _finite(metrics)
        for key in metrics.keys() - finite.keys():
            value = "NaN" if metrics[key] != metrics[key] else "infinite"
            self._say(line, f"the metric {key.removeprefix('own/')} is {value} at step {step:,}, which no chart can "
                      "draw", f"finite {key}")
        there = None if step > course.step else self._taking.metrics(course.id, step)
        if step > course.step:
            self._append(line, course, step, metrics, found.counters)
        elif there is None and self._taking.place.get("writer") == line.writer and step > course.begun:  # late
            self._append(line, course, step, metrics, found.counters, newest=False)
        elif there is None or any(there.get(key, value) != value for key, value in finite.items()):
            self._fork(line, course, step)
        else:
            self._taking.amend(course.id, step, finite)
            course.changed(step)

    def _append(self, line: Line, course: Course, step: int, metrics: Mapping[str, float],
                counters: Mapping[str, float], newest: bool = True) -> None:
        """Add a row. Counters never decrease, even if a clock does."""
        said, zero = line.said, self._taking.place.pop("zero", {})
        if zero.keys() & metrics.keys():
            self._say(line, f"the lab counts steps from 1: metrics of step 0 are skipped if step {step:,} has the same "
                      "metrics", "zero")
        finite = {**zero, **_finite(metrics)}
        self._taking.place["writer"] = line.writer
        tokens = int(self._counter(line, "tokens", EXACT, said.get("tokens"), counters.get("tokens")) or 0)
        env_steps = int(self._counter(line, "environment steps", EXACT, counters.get("env_steps")) or 0)
        tokens, env_steps = max(course.tokens, tokens), max(course.env_steps, env_steps)
        seconds = max(course.seconds, self._seconds(line, course, counters))
        record = Record(step, tokens, finite, env_steps)
        self._taking.append(course.id, record, seconds, newest)
        course.changed(step)
        if newest:
            course.step, course.seconds = step, seconds
            course.tokens, course.env_steps = tokens, env_steps
            for change in course.doctor.take(step, {**finite, **metrics}):
                self._taking.log(course.id, doctor.EVENT, doctor.payload(change), change.step)
                self._found.append((course, change))

    def _seconds(self, line: Line, course: Course, counters: Mapping[str, float]) -> float:
        """Return the seconds of a row. If a restarted trainer counts from 0, the earlier seconds are added."""
        seconds = self._counter(line, "seconds", LAST_SECOND, counters.get("seconds"), line.said.get("seconds"))
        if seconds is None:
            return course.seconds
        before: dict[str, float] = self._taking.place.setdefault("clocks", {})
        if line.writer not in before:
            before[line.writer] = course.seconds if seconds < course.seconds else 0.0
        return min(seconds + before[line.writer], LAST_SECOND)

    def _counter(self, line: Line, name: str, most: float, *said: object) -> float | None:
        """Return the first finite number; None if there is none. A number above `most` is skipped and reported."""
        found = next((value for each in said if (value := names.number(each)) is not None and math.isfinite(value)),
                     None)
        if found is None or found <= most:
            return found
        self._say(line, f"{name} of {found:g} are above {most:g} and were skipped", f"most {name}")
        return None

    def _fork(self, line: Line, course: Course, step: int) -> None:
        """Create a fork for a trainer that resumed before `step`, which the run already has."""
        place = self._taking.place
        place["forks"] = place.get("forks", 0) + 1
        if place["forks"] > MOST_FORKS:
            self._say(line, f"steps were repeated more than {MOST_FORKS} times, so further repeated steps are skipped: "
                      "make the trainer count its steps upwards", "forks")
            return
        parent, at = course, self._taking.before(course.id, step)
        while not at and parent.spec.parent:  # before its own first step
            run_id, left = parent.spec.parent
            parent, at = self._courses.get(run_id) or self._opened(run_id), min(left, step - 1)
            at = self._taking.before(run_id, at + 1)
        run_id = self._create(line, parent, at)
        place["runs"][line.writer] = place["newest"] = run_id
        text = f"The trainer went back to step {step:,}, so the run continues in the fork {run_id}."
        self._taking.log(course.id, "note", {"text": text}, course.step)
        self._taking.end(course.id, "stopped", text)
        course.over = True  # another process that still writes to it continues it
        self._numbers(line)

    def _known(self, line: Line, course: Course, metrics: Mapping[str, float]) -> dict[str, float]:
        """Return the metrics of a line, at most MOST_NAMES different ones per run."""
        new = [key for key in metrics if key not in course.names]
        room = MOST_NAMES - len(course.names)
        if len(new) > room:
            self._say(line, f"the run has more than {MOST_NAMES:,} metrics: {new[room]} and later ones are skipped",
                      "names")
        course.names.update(new[:room])
        return {key: value for key, value in metrics.items() if key in course.names}

    def _step(self, line: Line) -> int | None:
        """Return the step of a line; report a line without one and return None."""
        step = line.said.get("step")
        if isinstance(step, float) and step.is_integer():
            step = int(step)
        if type(step) is not int or not 0 <= step <= MOST_STEP:
            self._say(line, f"a line of {line.said['kind']} was skipped, because its step {str(step)[:40]} is not a "
                      "whole number from 0", "step")
            return None
        return step

    def _say(self, line: Line, text: str, key: str) -> None:
        """Log an error in a line, once per run and kind of error."""
        said, key = self._taking.place.setdefault("said", []), key[:LONGEST_KEY]
        if key not in said and len(said) < MOST_SAID and (course := self._course(line)):
            said.append(key)
            self._taking.log(course.id, "note", {"text": f"{text[:1].upper()}{text[1:LONGEST]}."}, course.step)


def merged(lines: Sequence[Line]) -> list[Line]:
    """Merge the metrics of several lines for one step into the first of these lines."""
    found: list[Line] = []
    last: dict[str, int] = {}  # writer -> the index of its newest line of metrics
    for line in lines:
        numbers = line.said.get("numbers") if line.said.get("kind") == "numbers" else None
        if isinstance(numbers, Mapping):
            before = found[last[line.writer]] if line.writer in last else line
            known = before.said.get("numbers", {})
            if before is not line and before.said.get("step") == line.said.get("step") and known.keys().isdisjoint(
                    numbers):
                found[last[line.writer]] = replace(before, said={**before.said, **line.said, "numbers": {
                    **known, **numbers}})
                continue
            last[line.writer] = len(found)
        found.append(line)
    return found


def spec_of(about: Mapping[str, Any], name: str) -> RunSpec:
    """Return the spec of a watched run from its first line."""
    tool = str(about.get("tool") or "")[:60]
    settings = names.settings(_mapping(about.get("config")))
    return RunSpec(WATCH.key, watch.row_of(watch.algorithm_of(settings), tool), str(about.get("name") or name)[:100],
                   WATCH.model, settings, steps=names.steps_of(settings), device="auto", tool=tool)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    return {key: value for key, value in metrics.items() if math.isfinite(value)}
