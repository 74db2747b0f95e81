"""Sweeps: the same run with a few knobs at several values, and several seeds. Queued at once, kept as a group.

The runs are like any others: they wait for a free place, and can be watched, stopped and forked one by one. Left out:
random search. Imports no torch.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from labcore.catalog.knob import Value
from labcore.errors import LabError, cut, listed, quoted
from labcore.runs import halving
from labcore.runs.halving import Halving
from labcore.runs.spec.run_spec import RunSpec, make
from labcore.runs.store.rows import ACTIVE, APART, RunRow
from labcore.runs.store.store import Store

MOST_RUNS = 2000  # the Sweep view and the queue are measured with 1,000 (benchmarks/sweep_at_size.py)
MOST_AXES = 4
CANCELLED = ("stopped", "interrupted")  # states that `resume` resumes; failed and diverged runs would only fail again


@dataclass(frozen=True)
class Sweep:
    """The runs of a sweep, in the order in which they were queued."""

    id: str
    runs: tuple[RunRow, ...]
    name: str = ""  # given by its owner

    @property
    def title(self) -> str:
        return self.name or self.id

    @property
    def axes(self) -> dict[str, list[Value]]:
        """The knobs that differ between its runs of one algorithm, with their values in order."""
        values: dict[str, dict[tuple[str, str], dict[Value, None]]] = {}  # knob -> algorithm, mix -> its values there
        for run in self.runs:
            for key, value in run.spec.knobs.items():
                values.setdefault(key, {}).setdefault((run.spec.algorithm, run.spec.mix), {})[value] = None
        return {key: list(dict.fromkeys(value for each in found.values() for value in each))
                for key, found in values.items() if any(len(each) > 1 for each in found.values())}

    @property
    def seeds(self) -> list[int]:
        return list(dict.fromkeys(run.spec.seed for run in self.runs))

    @property
    def active(self) -> bool:
        """True if one of its runs is queued or running."""
        return any(run.state in ACTIVE for run in self.runs)

    @property
    def states(self) -> dict[str, int]:
        """The number of runs in each state."""
        found = [run.state for run in self.runs]
        return {state: found.count(state) for state in dict.fromkeys(found)}


def grid(spec: RunSpec, axes: Mapping[str, Sequence[Any]], seeds: Sequence[int]) -> list[RunSpec]:
    """A spec for each combination of the values of `axes` (up to four knobs) and each seed, in the order of the seeds.
    Raises LabError if there are too many knobs or runs, a value or a seed is given twice, or a combination cannot be
    run."""
    if len(axes) > MOST_AXES:
        raise LabError(f"A sweep has at most {MOST_AXES} knobs, not {len(axes)} ({listed([*axes])}): fix the others.")
    for name, values in (*axes.items(), ("seeds", seeds)):
        if not values:
            raise LabError(f"The sweep has no {name}: give at least one.")
    count = len(seeds)
    for values in axes.values():
        count *= len(values)
    if count > MOST_RUNS:
        raise LabError(f"That sweep has {count:,} runs, more than {MOST_RUNS:,}: take fewer values or seeds.")
    if spec.parent and spec.twin and len(seeds) > 1:
        raise LabError("With common random numbers the fork uses its parent's random numbers, so its seeds have no "
                       "effect: choose one seed, or fresh random numbers.")
    specs = [_one(spec, dict(zip(axes, values, strict=True)), seed)
             for seed in seeds for values in product(*axes.values())]
    seen: set[str] = set()
    for found in specs:
        if (text := found.to_json()) in seen:
            named = ", ".join([*(f"`{key}={found.knobs[key]}`" for key in axes), f"seed {found.seed}"])
            raise LabError(f"The sweep has the run with {named} twice: give each value and each seed once.")
        seen.add(text)
    return specs


def _one(spec: RunSpec, knobs: Mapping[str, Any], seed: int) -> RunSpec:
    """`spec` with other knobs and another seed, checked as a whole."""
    try:
        return make(kind=spec.kind, algorithm_key=spec.algorithm, task_key=spec.task, model=spec.model,
                    knobs={**spec.knobs, **knobs}, seed=seed, steps=spec.steps, device=spec.device,
                    threads=spec.threads, data=spec.data, parent=spec.parent, twin=spec.twin, mix=spec.mix)
    except LabError as error:
        if not knobs:
            raise
        point = ", ".join(f"`{key}={cut(str(value))}`" for key, value in knobs.items())
        raise LabError(f"With {point}: {error}") from error


def queue(store: Store, specs: Sequence[RunSpec], mine: bool = False, early: Halving | None = None, name: str = "",
          project: str = "") -> str:
    """Queue a group of runs, all or none; return the sweep's id. Wake the launcher to have them started; `mine` as in
    `create`. `early`: the worse ones are stopped early. The sweep gets a `name`, and its runs a `project`.

    The runs may also have different algorithms: a sweep is any set of runs to be compared. Raises LabError if there are
    no runs or too many, or they cannot be stopped early by `early`.
    """
    if not 1 <= len(specs) <= MOST_RUNS:
        raise LabError(f"A sweep has from 1 to {MOST_RUNS:,} runs, not {len(specs):,}.")
    if early:
        halving.check(early, specs)
    sweep_id = f"sweep-{secrets.token_hex(3)}"
    store.create_all(specs, mine=mine, sweep=sweep_id, halving=early.to_json() if early else "", name=name,
                     project=project)
    return sweep_id


def sweep(store: Store, sweep_id: str) -> Sweep:
    """The sweep as it stands; deleted runs are no longer part of it. Raises LabError if there is none of that name."""
    rows = store.sweep_runs(sweep_id)
    if not rows:
        raise LabError(f"There is no sweep {quoted(sweep_id)}: list the sweeps to see their names.")
    return Sweep(sweep_id, tuple(rows), store.sweep_names().get(sweep_id, ""))


def sweeps(store: Store, apart: bool = True) -> list[Sweep]:
    """All sweeps, newest first; without `apart` none of a lesson or of a study."""
    names = store.sweep_names()
    found: dict[str, list[RunRow]] = {}
    for row in store.sweep_runs():
        if row.sweep and (apart or row.project not in APART):
            found.setdefault(row.sweep, []).append(row)
    return [Sweep(sweep_id, tuple(rows), names.get(sweep_id, "")) for sweep_id, rows in reversed(found.items())]


def cancel(store: Store, sweep_id: str) -> list[str]:
    """Stop the queued and running runs of a sweep; return their ids. Running ones checkpoint and end at their next
    step. Raises LabError if there is no such sweep."""
    stopped = []
    # The last first: a place that becomes free must not be given to a run that is about to be stopped.
    for run in reversed(sweep(store, sweep_id).runs):
        if run.state in ACTIVE:
            try:
                store.ask(run.id, "stop")
            except LabError:  # it has ended meanwhile
                continue
            stopped.append(run.id)
    return stopped[::-1]


def resume(store: Store, sweep_id: str, states: Sequence[str] = CANCELLED) -> list[str]:
    """Queue the runs of a sweep that were stopped or interrupted; return their ids. Wake the launcher then.

    They resume from their checkpoints. Those that failed or diverged are left as they are, and so are those that were
    stopped early, which can be resumed one by one. Raises LabError if there is no such sweep.
    """
    again = [run.id for run in resumable(sweep(store, sweep_id).runs, states)]
    for run_id in again:
        store.requeue(run_id)
    return again


def resumable(runs: Sequence[RunRow], states: Sequence[str] = CANCELLED) -> list[RunRow]:
    """The runs of a sweep that `resume` takes up again."""
    return [run for run in runs if run.state in states and not run.early]


def early_stopping(store: Store, sweep_id: str) -> Halving | None:
    """The early stopping of a sweep; None if it has none."""
    found = store.halvings(sweep_id)
    return Halving.from_json(found[sweep_id]) if sweep_id in found else None


def unjudged(store: Store, sweep_id: str) -> str:
    """Why no run of a sweep with early stopping is stopped early, in a sentence; empty where nothing is wrong."""
    why = store.unjudged(sweep_id).get(sweep_id, "")
    return why and (f"Early stopping is off for this sweep ({why.rstrip('.')}): no more runs are stopped early. Fix "
                    "the cause, and restart the lab if this message stays.")


def label(spec: RunSpec, axes: Sequence[str]) -> str:
    """The label of a run within its sweep: "beta 0.02, seed 1"."""
    values = [f"{key} {json.dumps(spec.knobs[key])}" for key in axes if key in spec.knobs]
    return ", ".join([*values, f"seed {spec.seed}"])
