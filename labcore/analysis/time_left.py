"""Estimate how long a comparison takes on this machine, from earlier runs or a measurement. Pure functions."""

from __future__ import annotations

import heapq
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from statistics import mean, median
from typing import Any

from labcore.llm.sizing.pace import base_folder, setting
from labcore.runs.spec.run_spec import RunSpec, base_spec
from labcore.runs.store.rows import ACTIVE, RunRow

NEWEST = 4  # runs whose mean is the pace of a setting; one alone depends on what ran beside it
PER_RUN = 0.4  # seconds: a process, the first and the last checkpoint


@dataclass(frozen=True)
class Pace:
    """The seconds of a run of a setting: `once` for each run, and `step` for each step."""

    once: float
    step: float


@dataclass(frozen=True)
class Estimate:
    """The estimated time of a comparison, seconds. `measured`: part of it is known from a measurement only; `unknown`
    are the algorithms without any estimate; `before` is the longest time that base models may take first."""

    seconds: float
    before: float
    measured: bool
    unknown: tuple[str, ...]


def earlier(runs: Iterable[RunRow]) -> dict[str, Pace]:
    """By setting, the mean pace of the newest runs that were made on this machine; `runs` come newest first.

    A fork's steps and seconds are its parent's too, whose pace may be another.
    """
    found: dict[str, list[float]] = {}
    for run in runs:
        if run.step and run.seconds and run.host == platform.node() and not run.spec.parent:
            found.setdefault(setting(run.spec), []).append(run.seconds / run.step)
    return {text: Pace(0.0, mean(steps[:NEWEST])) for text, steps in found.items()}


def of_job(specs: Sequence[str], result: Mapping[str, Any]) -> dict[str, Pace]:
    """The paces that the job `pace` measured for its specs."""
    return {text: Pace(**found) for text, found in zip(specs, result["paces"], strict=True) if found}


def bases(specs: Sequence[RunSpec]) -> list[RunSpec]:
    """The SFT runs that must make base models first, each once."""
    made = {sft.hash(): sft for spec in specs if not spec.parent and (sft := base_spec(spec)) and not base_folder(spec)}
    return list(made.values())


def unknown(specs: Sequence[RunSpec], known: Mapping[str, Pace]) -> list[RunSpec]:
    """One run of each setting whose pace is not known."""
    return list({text: spec for spec in specs if (text := setting(spec)) not in known}.values())


def estimate(specs: Sequence[RunSpec], known: Mapping[str, Pace], measured: Mapping[str, Pace],
             places: int) -> Estimate:
    """Estimate the time of the runs, `places` of them at a time, each begun as soon as a place is free.

    Left out: that a lab with a full queue has to wait first.
    """
    paces = {**measured, **known}
    ends = [0.0] * places
    for spec in specs:
        pace = paces.get(setting(spec), Pace(0.0, 0.0))
        heapq.heappush(ends, heapq.heappop(ends) + PER_RUN + pace.once + pace.step * spec.steps)
    missing = unknown(specs, paces)
    before = sum(paces[text].once + paces[text].step * sft.steps for sft in bases(specs)
                 if (text := setting(sft)) in paces)
    return Estimate(max(ends), before, bool(unknown(specs, known)),
                    tuple(dict.fromkeys(spec.row.label for spec in missing)))


# ---------------------------------------------------------------- progress
# How far a sweep is, and how long it will still take: from the pace of its own runs. Pure.

@dataclass(frozen=True)
class Progress:
    """The number of runs in each state, the steps that they have made, and the steps that they will make in all.

    `left` is the estimated time left, seconds; None if no run is running or nothing is known. The estimate uses the
    speed of `from_runs` runs and assumes `places` runs at a time, as many as are running now. With early stopping it is
    an upper bound (`at_most`), as if no more runs were stopped. `spared` are the steps saved by early stopping.
    """

    runs: int
    finished: int
    going: int
    waiting: int
    early: int
    cut_short: int
    failed: int
    steps: int
    of: int
    spared: int
    left: float | None = None
    from_runs: int = 0
    places: int = 0
    at_most: bool = False

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of runs by their names, those that are not 0."""
        found = {"finished": self.finished, "running": self.going, "waiting": self.waiting,
                 "stopped early": self.early, "stopped or interrupted": self.cut_short, "failed": self.failed}
        return {name: count for name, count in found.items() if count}

    @property
    def share(self) -> float:
        """The share of the work that is done."""
        return (self.steps + self.spared) / self.of if self.of else 0.0

    @property
    def basis(self) -> str:
        """The basis of the estimate; empty where there is none."""
        if self.left is None:
            return ""
        whose = f"{self.from_runs:,} runs" if self.from_runs > 1 else "1 run"
        return f"from the pace of {whose} of this sweep, {self.places:,} at a time"


def progress(rows: Sequence[RunRow], stops_early: bool = False) -> Progress:
    """The progress of the runs of a sweep."""
    states = [row.state for row in rows]
    going, waiting = (sum(state in ACTIVE and (state == "queued") == queued for state in states)
                      for queued in (False, True))
    failed = sum(state in ("failed", "diverged") for state in states)
    finished, early = states.count("finished"), sum(row.early for row in rows)
    timed = [row for row in rows if row.step and row.seconds and not row.spec.parent]  # a fork's are its parent's too
    left = _left(rows, timed, going) if going and timed else None
    return Progress(len(rows), finished, going, waiting, early,
                    len(rows) - finished - going - waiting - early - failed, failed,
                    sum(row.step for row in rows), sum(row.spec.steps for row in rows),
                    sum(row.spec.steps - row.step for row in rows if row.early), left, len(timed), going, stops_early)


def _left(rows: Sequence[RunRow], timed: Sequence[RunRow], places: int) -> float:
    """Seconds until the last run of the sweep ends, each begun as soon as one of the `places` is free."""
    paces = _paces(timed)
    usual = sum(row.seconds for row in timed) / sum(row.step for row in timed)
    once = _once(timed)
    ends: list[float] = []
    for row in sorted((row for row in rows if row.state in ACTIVE), key=lambda row: row.state == "queued"):
        begins = heappop(ends) if len(ends) >= places else 0.0
        pace = paces.get(setting(row.spec), usual)
        made = max(row.step, row.spec.parent[1] if row.spec.parent else 0)
        heappush(ends, begins + (once if row.state == "queued" else 0.0) + pace * (row.spec.steps - made))
    return max(ends)


def _paces(timed: Sequence[RunRow]) -> dict[str, float]:
    """By setting, the seconds that a step takes."""
    totals: dict[str, tuple[float, int]] = {}
    for row in timed:
        seconds, steps = totals.get(text := setting(row.spec), (0.0, 0))
        totals[text] = seconds + row.seconds, steps + row.step
    return {text: seconds / steps for text, (seconds, steps) in totals.items()}


def _once(timed: Sequence[RunRow]) -> float:
    """Seconds that a run takes beside its steps: its process, its session, its checkpoints."""
    beside = [row.ended - row.started - row.seconds for row in timed
              if row.state == "finished" and row.started and row.ended and row.ended - row.started > row.seconds]
    return median(beside) if beside else PER_RUN
