"""Measure the time of a few steps of each setting on this machine. A job, so that each is measured once.

Left out: that runs grow faster or slower as they learn, since completions and episodes change their length.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from pkgutil import resolve_name
from statistics import mean
from time import perf_counter
from typing import Any

from threadpoolctl import threadpool_limits

from labcore.catalog.knob import Knob
from labcore.catalog.llm.optimizer import SCHEDULE, WARMUP_STEPS
from labcore.errors import LabError
from labcore.runs import versions
from labcore.runs.files import bases
from labcore.runs.spec.run_spec import RunSpec, base_spec, knobs_of
from labcore.runs.spec.session import Record, Session

SECONDS = 2.0  # what all settings together may take
LEAST = 2  # records of a setting, however slow: the first one also makes what is made once
STEPS = 1000  # of a run that is measured: enough for any
# Coefficients that bring a computation with them: a pass, a gradient.
_WORK = ("top_entropy_share", "entropy_coef", "entropy_target")
PAIR_PROMPTS, EVAL_EVERY = 128, 2  # in place of a run's own, which would take most of the time

Spec = Mapping[str, Any]


def asked(specs: Iterable[RunSpec]) -> dict[str, Any]:
    """The job that measures the settings of some runs here, each once; another machine or code is another job."""
    texts = dict.fromkeys(setting(spec) for spec in specs)
    return {"job": "pace", "specs": list(texts), "seconds": SECONDS, "host": platform.node(), "made": versions.here()}


def setting(spec: RunSpec) -> str:
    """The settings on which a run's speed depends, as text: without the seed, the number of steps, and the coefficients
    of its loss."""
    same = {knob.key: knob.default for knob in knobs_of(spec.row, spec.task_row) if _costs_nothing(knob)}
    return replace(spec, seed=0, steps=STEPS, parent=None, knobs={**spec.knobs, **same}).to_json()


def _costs_nothing(knob: Knob) -> bool:
    number = knob.type is float and knob.effect == "live" and knob.key not in _WORK
    return number or knob.key in (SCHEDULE.key, WARMUP_STEPS.key)


def base_folder(spec: RunSpec) -> Path | None:
    """The base model that a run starts from, if it needs one and it exists already or is part of the lab."""
    sft = base_spec(spec)
    folder = bases.readable(sft.hash()) if sft else None
    return folder / "model" if folder else None


def pace(spec: Spec) -> dict[str, Any]:
    """{"paces": [{"once", "step"} or None, …]} in seconds, for each of the specs: before the first step, and each step.

    None where a setting cannot be run for a moment, or time is up before it.
    """
    begun, specs = perf_counter(), [RunSpec.from_json(text) for text in spec["specs"]]
    found = []
    for place, each in enumerate(specs):
        left = begun + spec["seconds"] - perf_counter()
        found.append(_measured(each, left / (len(specs) - place)) if left > 0 else None)
    return {"paces": found}


def _measured(spec: RunSpec, seconds: float) -> dict[str, float] | None:
    own = {key: value for key, value in (("pair_prompts", PAIR_PROMPTS), ("eval_every", EVAL_EVERY))
           if key in spec.knobs}
    threadpool_limits(spec.threads)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(spec.threads)
    begun = perf_counter()
    try:
        session: Session = resolve_name(spec.kind_row.session).start(
            replace(spec, knobs={**spec.knobs, **own}), base_folder(spec))
        made = _records(session, begun + seconds)
    except LabError:  # an untrained model earns nothing to make pairs of, say: the run itself will say so
        return None
    return _pace(spec, begun, made)


def _records(session: Session, until: float) -> list[tuple[float, Record]]:
    made: list[tuple[float, Record]] = []
    for record in session.run():
        if record is not None:
            made.append((perf_counter(), record))
            if perf_counter() > until and len(made) >= LEAST:
                break
    return made


def _pace(spec: RunSpec, begun: float, made: Sequence[tuple[float, Record]]) -> dict[str, float] | None:
    if len(made) < LEAST:  # it was finished before
        return None
    took = [(after - before, "exact_match" in record.metrics) for (before, _), (after, record) in pairwise(made)]
    plain = [seconds for seconds, evaluated in took if not evaluated]
    evaluated = [seconds for seconds, measured in took if measured]
    step = mean(plain or evaluated)
    if plain and evaluated and "eval_every" in spec.knobs:
        step += max(0.0, mean(evaluated) - step) / int(spec.knobs["eval_every"])
    once = max(0.0, made[0][0] - begun - step)
    return {"once": once * _share(spec), "step": step}


def _share(spec: RunSpec) -> float:
    """The ratio of the number of pairs made before the first step to the number made in the measurement."""
    return max(1.0, int(spec.knobs["pair_prompts"]) / PAIR_PROMPTS) if "pair_prompts" in spec.knobs else 1.0
