"""Early stopping as a process: it decides which runs of a sweep continue, by their rows in the store.

The supervisor starts it while a sweep with early stopping has runs that wait or go, and it ends with the supervisor. It
knows nothing that is not in the store: another one, or that of another lab on the same store, decides the same. Why a
sweep is not judged is in the store as well, until a judge has looked at it again.
`python -m labcore.workers.judge`: the lifeline is standard input.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Collection, Set
from contextlib import suppress

from labcore.errors import LabError, first_line
from labcore.runs.halving import MISSING, Halving, Rungs, lacks_optuna, value_at
from labcore.runs.store.rows import ACTIVE, Decision
from labcore.runs.store.store import Store
from labcore.workers import process
from labcore.workers.lifeline import Lifeline

COMMAND = (sys.executable, "-m", "labcore.workers.judge")
POLL_SECONDS = 0.5
TRIES = 3  # a judge that ends with a fault so often is not started again


class Judge:
    """The decisions on one sweep."""

    def __init__(self, store: Store, sweep_id: str, how: Halving):
        self._store, self._sweep, self._how = store, sweep_id, how
        self._stays: set[str] = set()  # was stopped early, and resumed by somebody
        self._silent: set[tuple[str, int]] = set()  # runs without the metric at a step
        self._remember()

    def _remember(self) -> None:
        """Repeat the earlier questions to Optuna, in the same order."""
        self._rungs_of = {row.id: self._how.rungs(row.spec.steps) for row in self._store.sweep_runs(self._sweep)}
        self._turn, decisions = self._store.decisions(self._sweep)
        self._rungs = Rungs(self._how)
        self._judged: dict[str, int] = {}  # run -> the last step at which it was
        self._out: dict[str, Decision] = {}  # runs that are to end
        for each in decisions:
            self._rungs.came(each.run_id, each.step, each.payload["value"])
            self._note(each)

    def _note(self, decision: Decision) -> None:
        self._judged[decision.run_id] = decision.step
        if not decision.payload["kept"]:
            self._out[decision.run_id] = decision

    def look(self) -> None:
        """Decide what is to be decided by now, and see that who is to end does."""
        standing = self._store.standing(self._sweep)
        if not self._decide(standing):
            self._remember()  # another lab decided meanwhile; the rest is decided at the next look
        for run_id in self._out.keys() - self._stays:
            if standing.get(run_id, ("", 0))[0] in ACTIVE:
                self._stop(self._out[run_id])

    def _decide(self, standing: dict[str, tuple[str, int]]) -> bool:
        """False where somebody else has decided since this judge last looked."""
        due = self._due(standing)
        rows = self._store.columns([*{run_id for _, run_id in due}], [self._how.metric])
        for step, run_id in due:
            steps, *_, values = rows[run_id]
            value = value_at(step, steps, values)
            if run_id in self._out:  # at an earlier step, a moment ago
                continue
            if value is None:
                self._silent.add((run_id, step))
                continue
            kept, of = self._rungs.came(run_id, step, value)
            text = self._how.verdict(step, value, of, kept, over=standing[run_id][0] == "finished")
            decision = self._store.decide(self._sweep, self._turn, run_id, step, {
                "metric": self._how.metric, "value": value, "kept": kept, "text": text})
            if decision is None:
                return False
            self._turn += 1
            self._note(decision)
        return True

    def _due(self, standing: dict[str, tuple[str, int]]) -> list[tuple[int, str]]:
        """(step, run) of the rungs that runs have come to and were not judged at, the lowest first, in the runs' order.

        What was interrupted is judged once it goes again.
        """
        return sorted(
            ((rung, run_id) for run_id, (state, step) in standing.items()
             if state in (*ACTIVE, "finished") and run_id not in self._out
             for rung in self._rungs_of.get(run_id, ())
             if self._judged.get(run_id, 0) < rung <= step and (run_id, rung) not in self._silent),
            key=lambda each: each[0])

    def _stop(self, decision: Decision) -> None:
        """Ask a run to stop, unless it has stopped since and was resumed: then somebody wants it to go on."""
        since = self._store.events_after(decision.run_id, decision.event)
        if any(event.kind == "stopped" for event in since):
            self._stays.add(decision.run_id)
        elif not any(control.command == "stop" for control in self._store.asked(decision.run_id)):
            with suppress(LabError):  # it has ended meanwhile
                self._store.ask(decision.run_id, "stop", {"why": decision.payload["text"], "early": True})


def main() -> None:
    """Judge the sweeps of the store until the lab is gone, or no sweep is to be judged any more."""
    store = Store()
    if lacks_optuna():
        _say(store, store.halvings(), "Optuna is not installed: run pip install -r requirements-sweeps.txt")
        sys.exit(MISSING)
    judges: dict[str, Judge] = {}
    with Lifeline(sys.stdin.fileno()) as lifeline:
        while not lifeline.cut and _look(store, judges):
            time.sleep(POLL_SECONDS)


def _look(store: Store, judges: dict[str, Judge]) -> bool:
    """Judge what has come since; whether there is any sweep to judge. A store that cannot be used is asked again."""
    try:
        sweeps = store.halvings()
    except LabError as error:
        print(error, file=sys.stderr, flush=True)
        return True
    for sweep_id, text in sweeps.items():
        try:
            if sweep_id not in judges:
                judges[sweep_id] = Judge(store, sweep_id, Halving.from_json(text))
            judges[sweep_id].look()
            store.set_unjudged([sweep_id], None)
        except LabError as error:  # the disk is full, say: later there may be room
            judges.pop(sweep_id, None)  # it may remember what was not written
            print(error, file=sys.stderr, flush=True)
            _say(store, [sweep_id], str(error))
        except Exception as error:  # the lab's own fault, or Optuna's: it is said, and the process ends with it
            _say(store, [sweep_id], f"{type(error).__name__}: {first_line(error)}")
            raise
    return bool(sweeps)


def _say(store: Store, sweeps: Collection[str], why: str) -> None:
    """Note why sweeps are not judged."""
    with suppress(LabError):  # the same fault, which the log has
        store.set_unjudged(sweeps, why)


class Judging:
    """The judge as the supervisor has it."""

    def __init__(self, store: Store):
        self._store = store
        self._process: subprocess.Popen[bytes] | None = None
        self._faults = 0  # in a row
        self._code: int | None = None  # the last one
        self._said: set[str] = set()  # the sweeps that it was given up for

    def fill(self) -> None:
        """Start it where there is something to judge and none lives."""
        if self._process and (code := self._process.poll()) is None:
            return
        if self._process:
            self.cut()
            self._faults, self._code = (self._faults + 1 if code else 0), code
        sweeps = self._store.halvings()
        if self._faults >= TRIES:
            self._give_up(sweeps.keys() - self._said)
        elif sweeps:
            self._process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE,
                                             env=process.environment(self._store.url))

    def _give_up(self, sweeps: Set[str]) -> None:
        """Say once of each sweep why it is not judged, unless the judge itself has said it."""
        if sweeps:
            self._store.set_unjudged(sweeps - self._store.unjudged().keys(), (
                f"the process that decides ended {TRIES} times in a row, the last time with code {self._code}; its "
                "output is in the lab's log"))
            self._said |= sweeps

    def cut(self) -> None:
        """Let it know that the lab is gone."""
        if self._process:
            assert self._process.stdin
            self._process.stdin.close()
            self._process.terminate()
            self._process.wait()
            self._process = None


if __name__ == "__main__":
    main()
