"""How long a comparison will take here: from earlier runs on this machine, else from a measurement. Pure."""

from __future__ import annotations

import heapq
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from labcore.jobs.pace import base_folder, setting
from labcore.spec.run_spec import RunSpec, base_spec
from labcore.store.rows import RunRow

NEWEST = 4  # runs of a setting that a pace is the mean of: what else ran beside them differs
PER_RUN = 0.4  # seconds: a process, the first and the last checkpoint


@dataclass(frozen=True)
class Pace:
    """Seconds of a setting: what it takes `once`, and each `step`."""

    once: float
    step: float


@dataclass(frozen=True)
class Estimate:
    """How long a comparison will take, in seconds. `measured`: some of it is known from a measurement alone; `unknown`
    names the algorithms of which nothing is known; `before` is the most that the base models may take first."""

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
    """What the job `pace` found of its specs."""
    return {text: Pace(**found) for text, found in zip(specs, result["paces"], strict=True) if found}


def bases(specs: Sequence[RunSpec]) -> list[RunSpec]:
    """The SFT runs that must make base models first, each once."""
    made = {sft.hash(): sft for spec in specs if not spec.parent and (sft := base_spec(spec)) and not base_folder(spec)}
    return list(made.values())


def unknown(specs: Sequence[RunSpec], known: Mapping[str, Pace]) -> list[RunSpec]:
    """A run of each setting of which no pace is known."""
    return list({text: spec for spec in specs if (text := setting(spec)) not in known}.values())


def estimate(specs: Sequence[RunSpec], known: Mapping[str, Pace], measured: Mapping[str, Pace],
             places: int) -> Estimate:
    """What the runs will take, `places` of them at a time, each begun as soon as a place is free.

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
