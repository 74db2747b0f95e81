"""Forks: runs that begin at a checkpoint of another run, with other knobs or another algorithm.

A fork counts its steps on from there. With the same knobs and common random numbers (`twin`) it repeats its parent bit
for bit. Left out: another task or model, and knobs that shape what the checkpoint holds (the number of environments,
say): those need a new run. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labcore.catalog import choices, kinds
from labcore.catalog.algorithm import Algorithm
from labcore.catalog.knob import Knob, Value
from labcore.errors import LabError
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files import storage
from labcore.runs.files.paths import START, run_folder
from labcore.runs.knob_history import KnobHistory
from labcore.runs.spec.run_spec import RunSpec, check_ours, knobs_of, make
from labcore.runs.store.rows import RunRow
from labcore.runs.store.store import Store

# What an algorithm is made of: another algorithm has its own.
_IDENTITY = {*(family.key for family in choices.FAMILIES), "kl_placement"}


@dataclass(frozen=True)
class Branch:
    """A run in a tree of forks: `depth` 0 is the root, `step` where it left its parent (0 at the root)."""

    run: RunRow
    depth: int
    step: int


def fork_spec(store: Store, run_id: str, step: int | None = None, *, algorithm: str | None = None,
              knobs: Mapping[str, Any] | None = None, twin: bool = True, seed: int | None = None,
              steps: int | None = None) -> RunSpec:
    """The spec of a fork of `run_id` at the checkpoint of `step` (None: the newest); `store.create` makes the run.

    Its knobs are the parent's values at that step, changed by `knobs`. Another algorithm has its own defaults, except
    where the parent's value of the very same knob was chosen. `steps` is the step at which it ends, by default the
    parent's; if the fork begins there, as many steps again. `twin`: the fork continues the parent's random numbers;
    otherwise they begin anew from `seed` (None: a seed that no fork of this run has). A change that counts first in
    step s is undone by a fork at the newest checkpoint before s. Raises LabError if there is no such run or checkpoint,
    the two algorithms share no network, or a value is not allowed.
    """
    row = store.run(run_id)
    check_ours(row.spec)
    parent, at = row.spec, _checkpointed(run_id, step)
    key = algorithm or parent.algorithm
    values = KnobHistory(parent, store.events_after(run_id)).at(at)
    given = (values if key == parent.algorithm else carried(parent, values, key)) | dict(knobs or {})
    if twin and seed is not None:
        raise LabError("With common random numbers a fork uses its parent's random numbers, so a seed has no effect: "
                       "leave the seed out, or use fresh random numbers (--fresh).")
    if seed is None:
        seed = parent.seed if twin else max([parent.seed, *(child.spec.seed for child in store.children(run_id))]) + 1
    if steps is None:
        steps = parent.steps if at < parent.steps else at + parent.steps
    elif steps <= at:
        raise LabError(f"The fork begins at step {at}, so it cannot end at step {steps}: choose a later step, for "
                       f"example {at + parent.steps}.")
    spec = make(kind=parent.kind, algorithm_key=key, task_key=parent.task, model=parent.model, knobs=given, seed=seed,
                steps=steps, device=parent.device, threads=parent.threads, data=parent.data, parent=(run_id, at),
                twin=twin, mix=parent.mix if key == parent.algorithm else "")
    check(parent, spec)
    return spec


def steps_to_fork(run_id: str) -> list[int]:
    """The steps of a run that have a checkpoint, in order."""
    return [step for step, _ in checkpoint.steps(run_folder(run_id))]


def optimizer_note(run_id: str, step: int) -> str:
    """A sentence on the inexactness of a fork of `run_id` at the checkpoint of `step`; usually empty."""
    if checkpoint.keeps_optimizer(run_folder(run_id), step):
        return ""
    return (f"The checkpoint of step {step:,} holds the weights without the optimizer state, to save disk space: the "
            "fork starts with a new optimizer state.")


def newest_before(there: Iterable[int], step: int) -> int | None:
    """Of the steps that have a checkpoint the newest before `step`; None where there is none."""
    return max((at for at in there if at < step), default=None)


def _checkpointed(run_id: str, step: int | None) -> int:
    there = steps_to_fork(run_id)
    if not there:
        raise LabError(f"The run {run_id} has no checkpoint to fork from: wait for its first step, or resume it.")
    if step is None or step in there:
        return there[-1] if step is None else step
    near = [*[at for at in there if at < step][-1:], *[at for at in there if at > step][:1]]
    raise LabError(f"The run {run_id} has no checkpoint of step {step}: fork it from step "
                   f"{' or '.join(map(str, near))}.")


def carried(parent: RunSpec, values: Mapping[str, Value], algorithm: str) -> dict[str, Value]:
    """The knobs of the parent with which a fork by another algorithm begins.

    The same knob, not just the same name: where its value was chosen, or cannot change.
    """
    usual = {knob.key: knob.default for knob in parent.declared}
    return {knob.key: values[knob.key] for knob in _shared(parent, _continued(parent, algorithm))
            if knob.key not in _IDENTITY and (values[knob.key] != usual[knob.key] or _fixed(knob, parent))}


def compatible(parent: RunSpec) -> list[Algorithm]:
    """The algorithms that can start from a checkpoint of `parent`, its own first."""
    able = [row for row in (_continued(parent, key) for key in parent.kind_row.algorithms)
            if row.learns(parent.task_row) and set(row.models) & set(parent.row.models)]
    return sorted(able, key=lambda row: row.key != parent.algorithm)


def movable(parent: RunSpec, algorithm: str) -> list[Knob]:
    """The knobs of a fork by `algorithm` that may have other values than the parent's."""
    row = _continued(parent, algorithm)
    fixed = {knob.key for knob in _shared(parent, row) if _fixed(knob, parent)}
    return [knob for knob in knobs_of(row, parent.task_row, parent.weights) if knob.key not in fixed]


def _continued(parent: RunSpec, algorithm: str) -> Algorithm:
    """The row that a fork by `algorithm` has: of its parent's own the parent's, which may be a mix."""
    return parent.row if algorithm == parent.algorithm else kinds.algorithm(algorithm, parent.kind)


def _shared(parent: RunSpec, row: Algorithm) -> list[Knob]:
    """The knobs of `parent`, with its defaults, that another algorithm has too; a knob of another meaning is none."""
    there = {knob.key: knob for knob in knobs_of(row, parent.task_row)}
    return [knob for knob in knobs_of(parent.row, parent.task_row)
            if knob.key in there and there[knob.key].with_default(knob.default) == knob]


def _fixed(knob: Knob, parent: RunSpec) -> bool:
    """True if a knob shapes the task or what a checkpoint holds, or came before its first step."""
    of_task = knob.key in {own.key for own in parent.task_row.knobs}
    return knob.effect == "restart" and (of_task or not (knob.choices or knob.forkable))


def check(parent: RunSpec, spec: RunSpec) -> None:
    """Check that the fork `spec` can start from a checkpoint of `parent`. Raises LabError if their algorithms share no
    network, or a knob differs that a fork cannot change."""
    row, theirs = spec.row, parent.row
    if not set(row.models) & set(theirs.models):
        raise LabError(f"{theirs.label} trains {' and '.join(theirs.models)}, {row.label} {' and '.join(row.models)}: "
                       f"neither can start from the other's checkpoint. Start a new run of {row.label}.")
    for knob in _shared(parent, row):
        value, before = spec.knobs[knob.key], parent.knobs[knob.key]
        if _fixed(knob, parent) and value != before:
            raise LabError(f"A fork keeps the `{knob.key}` of its parent, {before}: to have `{knob.key}={value}`, "
                           "start a new run.")


def beginning(run_id: str, spec: RunSpec) -> tuple[RunSpec, Path]:
    """The parent's spec, and its checkpoint from which the fork `run_id` starts. Raises LabError if the fork has no
    copy of them yet and the parent or its checkpoint is gone."""
    assert spec.parent is not None, "only a fork has a beginning"
    parent, step = spec.parent
    start = run_folder(run_id) / START
    if storage.has(start):
        storage.fetch(start)
        return RunSpec.in_folder(start), start / "checkpoint"
    if not storage.has(run_folder(parent) / "spec.json"):
        raise LabError(f"The run {parent}, from whose step {step} this fork was to start, was deleted: fork another "
                       "run, or start a new one.")
    found = dict(checkpoint.steps(run_folder(parent)))
    if step not in found:
        raise LabError(f"The run {parent} has no checkpoint of step {step} any more: fork it from another step.")
    return RunSpec.in_folder(run_folder(parent)), storage.fetch(found[step])


def _left(row: RunRow) -> int:
    """The step at which a run left its parent; 0 of one that is no fork."""
    return row.spec.parent[1] if row.spec.parent else 0


def lineage(store: Store, run_id: str) -> list[Branch]:
    """The tree of forks that a run is part of, each run before its forks, these by step and age.

    If a parent was deleted, its fork is the root. Raises LabError if there is no such run.
    """
    root, passed = store.run(run_id), {run_id}
    while root.spec.parent and root.spec.parent[0] not in passed:  # else somebody changed the store
        passed.add(root.spec.parent[0])
        try:
            root = store.run(root.spec.parent[0])
        except LabError:  # deleted
            break
    found: list[Branch] = []
    there: set[str] = set()

    def add(row: RunRow, depth: int) -> None:
        if row.id in there:
            return
        there.add(row.id)
        found.append(Branch(row, depth, _left(row) if depth else 0))
        for child in sorted(store.children(row.id), key=_left):
            add(child, depth + 1)

    add(root, 0)
    return found
