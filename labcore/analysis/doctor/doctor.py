"""The doctor of a run: it takes the rows one by one, applies the rules every few steps, and reports findings that begin
or end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace

from labcore.analysis.doctor.finding import Change, Finding
from labcore.analysis.doctor.rules import NOT_FINITE, READS, RULES, URGENT, Rule, ordered
from labcore.analysis.doctor.run_view import KnobChange, Memory, RunView
from labcore.catalog.knob import Value
from labcore.runs.knob_history import KnobHistory
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.store.rows import Event, Step

EVERY = 5  # steps between two looks
CLOSES = 3  # looks in a row after which a finding has passed
LASTS = 10  # looks after which it has passed although nothing was done about it
MOST_CHANGES = 50  # of knobs that are remembered
EVENT = "doctor"  # kind of event


class Doctor:
    """The findings of one run, step after step. Without a spec, and for watched runs, the knobs are unknown."""

    def __init__(self, spec: RunSpec | None = None):
        spec = ours(spec)
        self._memory = Memory(READS)
        self._view = RunView(self._memory) if spec is None else RunView(
            self._memory, spec.knobs, {knob.key: knob for knob in spec.declared})
        self._knobs = dict(self._view.knobs)
        self._changes: deque[KnobChange] = deque(maxlen=MOST_CHANGES)  # the newest
        self._open: dict[str, Finding] = {}
        self._began: dict[str, dict[str, float]] = {}  # values, at its beginning, of the knobs that ease it
        self._seen: dict[str, int] = {}  # looks in a row at which a rule saw it otherwise than it stands
        self._taken = 0

    @property
    def step(self) -> int:
        """The last step that it was given."""
        return self._memory.step

    @property
    def findings(self) -> list[Finding]:
        """The present findings, the most severe first."""
        return ordered(list(self._open.values()))

    def changed_since(self, logged: Iterable[Finding]) -> list[Change]:
        """The differences between the findings in a log and the present ones: findings that began or ended."""
        before, now = {found.rule for found in logged}, self._open
        return [Change(self.step, rule, now.get(rule)) for rule in sorted(before ^ now.keys())]

    def take(self, step: int, metrics: Mapping[str, float], knobs: Mapping[str, Value] | None = None) -> list[Change]:
        """Take a row, and the knobs with which it was made. Returns the findings that began or ended by it, usually
        none."""
        if step <= self.step:
            return []
        self._memory.add(step, metrics)
        self._taken += 1
        for key, value in (knobs or {}).items():
            if key in self._view.declared and value != self._knobs[key]:
                self._changes.append(KnobChange(key, step, self._knobs[key], value))
        self._knobs = dict(knobs or self._knobs)  # the knobs of a session change in place
        rules = RULES if self._taken % EVERY == 0 else URGENT
        view = replace(self._view, knobs=self._knobs, changes=tuple(self._changes))
        return [change for rule in rules if (change := self._look(rule, view))]

    def diverged(self, step: int, message: str) -> Change:
        """The finding that ended the run: a number at `step` is not finite. The step has no row, so the finding is made
        from `message`, the run's own message."""
        evidence, _, fix = message.partition(": ")
        view = replace(self._view, knobs=self._knobs)
        finding = Finding("A number is not finite", f"{evidence[:1].lower()}{evidence[1:]}",
                          f"{fix[:1].upper()}{fix[1:]}", rule=NOT_FINITE, began=step,
                          **view.scaled("learning_rate", 1 / 3))
        self._open[NOT_FINITE] = finding
        return Change(step, NOT_FINITE, finding)

    def _look(self, rule: Rule, view: RunView) -> Change | None:
        held = rule.key in self._open
        found = rule.look(replace(view, held=held))
        if (found is not None) == held:
            self._seen.pop(rule.key, None)
            return None
        seen = self._seen[rule.key] = self._seen.get(rule.key, 0) + 1
        if not held and seen == 1:
            self._began[rule.key] = _easing(rule, view)
        if seen < (self._looks_to_close(rule, view) if held else rule.opens):
            return None
        del self._seen[rule.key]
        if found is None:
            del self._open[rule.key]
        else:
            self._open[rule.key] = found
        return Change(self.step, rule.key, found)

    def _looks_to_close(self, rule: Rule, view: RunView) -> int:
        """CLOSES where a knob that eases what the rule found is lower since, where the run has none or came through."""
        now, before = _easing(rule, view), self._began[rule.key]
        eased = not now or view.solved or any(now[key] < before[key] for key in now)
        return CLOSES if eased else LASTS


def _easing(rule: Rule, view: RunView) -> dict[str, float]:
    """The knobs of the run that ease what a rule finds where they are lower, as they are now."""
    return {key: float(view.knobs[key]) for key in rule.eased_by if key in view.declared}


def ours(spec: RunSpec | None) -> RunSpec | None:
    """Return the spec of a run that the lab trains, otherwise None."""
    return None if spec is None or spec.kind_row.elsewhere else spec


def course(spec: RunSpec | None, steps: Iterable[Step], events: Iterable[Event] = ()) -> tuple[Doctor, list[Change]]:
    """The doctor after all of a run's steps, and its changes of findings on the way."""
    doctor, history = Doctor(spec), KnobHistory(trained, events) if (trained := ours(spec)) else None
    said = [change for step in steps
            for change in doctor.take(step.step, step.metrics, history.at(step.step) if history else None)]
    return doctor, said


def payload(change: Change) -> dict[str, object]:
    """The payload of the event of a change."""
    return change.finding.payload if change.finding else {"rule": change.rule, "holds": False,
                                                          "text": f"passed: {change.rule.replace('_', ' ')}"}


def said(events: Iterable[Event]) -> list[Change]:
    """The doctor's findings in the events of a run, in their order; `finding` is None where a rule has passed."""
    return [Change(event.step, event.payload["rule"], Finding.of(event.payload) if event.payload["holds"] else None)
            for event in events if event.kind == EVENT]


def holding(events: Iterable[Event], step: int | None = None) -> list[tuple[int, Finding]]:
    """The findings at a step (None: now), each with the step at which it began, the most severe first."""
    found: dict[str, tuple[int, Finding]] = {}
    for change in said(events):
        if step is None or change.step <= step:
            found.pop(change.rule, None)
            if change.finding:
                found[change.rule] = change.step, change.finding
    return [found[each.rule] for each in ordered([each for _, each in found.values()])]
