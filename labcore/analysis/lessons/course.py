"""The runs of a lesson: queued as a sweep, one more seed for all of them, and their numbers for the check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from labcore.analysis.lessons.expression import Logged, Runs
from labcore.analysis.lessons.lesson import MOST_SEEDS, Lesson, Setup
from labcore.analysis.lessons.verdict import Verdict, judge
from labcore.errors import LabError
from labcore.runs import sweep
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.spec.session import Record
from labcore.runs.store.rows import ACTIVE, LESSONS, RunRow, Step
from labcore.runs.store.store import Store


@dataclass(frozen=True)
class Course:
    """The runs of a lesson as they stand: rows by setup and seed, seeds in the order in which they were started."""

    lesson: Lesson
    sweep: str
    rows: Mapping[tuple[str, int], RunRow]

    @property
    def seeds(self) -> list[int]:
        return list(dict.fromkeys(seed for _, seed in self.rows))

    @property
    def whole(self) -> list[int]:
        """The seeds with which every run has finished."""
        return [seed for seed in self.seeds if all(
            (row := self.rows.get((setup.name, seed))) and row.state == "finished" for setup in self.lesson.setups)]

    @property
    def active(self) -> bool:
        return any(row.state in ACTIVE for row in self.rows.values())

    @property
    def broken(self) -> list[RunRow]:
        """Runs that ended without finishing: they can be resumed, or the lesson begun again."""
        return [row for row in self.rows.values() if row.state not in (*ACTIVE, "finished")]

    @property
    def next_seed(self) -> int | None:
        """The seed that would be run next; None where there are enough."""
        return None if len(self.seeds) >= MOST_SEEDS else max({*self.seeds, *self.lesson.seeds}) + 1

    def of(self, setup: Setup) -> list[RunRow]:
        return [row for (name, _), row in self.rows.items() if name == setup.name]


def specs(lesson: Lesson, seeds: Iterable[int]) -> list[RunSpec]:
    """A spec for each seed and run; all runs of a seed first."""
    return [setup.at(seed) for seed in seeds for setup in lesson.setups]


def start(store: Store, lesson: Lesson, mine: bool = False) -> str:
    """Queue the lesson's runs as a sweep; return its id. Wake the launcher afterwards, or with `mine` run them in this
    process."""
    return sweep.queue(store, specs(lesson, lesson.seeds), mine, project=LESSONS)


def one_more(store: Store, course: Course) -> int:
    """Queue every run with one more seed; return the seed. Wake the launcher then. Raises LabError if there are as many
    seeds as a lesson may have."""
    seed = course.next_seed
    if seed is None:
        raise LabError(f"There are {MOST_SEEDS} seeds already: a difference that they do not show counts as a tie.")
    for spec in specs(course.lesson, [seed]):
        store.create(spec, sweep=course.sweep, project=LESSONS)
    return seed


def course(store: Store, lesson: Lesson, sweep_id: str) -> Course:
    """The lesson's runs as they stand. Runs of another version of the lesson's file are left out. Raises LabError if no
    run is left."""
    found: dict[tuple[str, int], RunRow] = {}
    by_spec = {setup.spec.to_json(): setup.name for setup in lesson.setups}
    for row in sweep.sweep(store, sweep_id).runs:
        name = by_spec.get(Setup("", "", row.spec).at(0).to_json())  # with any seed
        if name is not None:
            found[name, row.spec.seed] = row
    if not found:
        raise LabError("The lesson was changed since these runs were made: run it again.")
    return Course(lesson, sweep_id, found)


def verdict(store: Store, found: Course) -> Verdict | None:
    """The verdict of the finished runs; None while runs are active, or before all runs have finished with one common
    seed. Raises LabError if a knob of a run was changed mid-run, or its numbers cannot be compared."""
    seeds = found.whole
    if not seeds or found.active:
        return None
    for (_, seed), row in found.rows.items():
        if seed in seeds and any(event.kind == "knob" for event in store.events_after(row.id)):
            raise LabError(f"A knob of the run {row.id} was changed mid-run, so the run no longer matches the lesson: "
                           "run the lesson again.")
    runs = {setup.name: [logged(store.steps_after(found.rows[setup.name, seed].id)) for seed in seeds]
            for setup in found.lesson.setups}
    return judge(found.lesson.check, runs)


def logged(rows: Sequence[Step] | Sequence[Record]) -> Logged:
    """The rows of a run by metric: steps and values of those that have it."""
    columns: dict[str, tuple[list[int], list[float]]] = {}
    for row in rows:
        for key, value in row.metrics.items():
            steps, values = columns.setdefault(key, ([], []))
            steps.append(row.step)
            values.append(value)
    return {key: (np.array(steps, float), np.array(values, float)) for key, (steps, values) in columns.items()}


__all__ = ["Course", "Runs", "course", "logged", "one_more", "specs", "start", "verdict"]
