"""The small pictures of the lessons: the curves of runs that were made once for all readers, kept beside the texts.

`python -m docs.record_lessons` makes them. A picture belongs to the exact runs of its lesson: `recorded` returns none
once the lesson was changed, and a test asks for a new recording.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from labcore.analysis.lessons.expression import Logged, Runs
from labcore.analysis.lessons.lesson import Lesson
from labcore.runs.spec.run_spec import RunSpec

FILE = Path(__file__).with_name("recorded.json")
POINTS = 24  # of a curve

Curves = Mapping[str, Mapping[str, Sequence[float]]]  # by metric, then by the run's name in the lesson


def recorded(lesson: Lesson) -> Curves | None:
    """The recorded curves of a lesson that comes with the lab; None for other lessons."""
    kept = _kept().get(lesson.name)
    return kept["curves"] if kept and kept["runs"] == digest(lesson) else None


def digest(lesson: Lesson) -> str:
    """Names the runs of a lesson and the curves of its picture: a changed lesson has another digest."""
    specs = (setup.at(seed) for setup in lesson.setups for seed in lesson.seeds)
    return hashlib.sha256("\n".join([*map(_as_before, specs), *lesson.picture]).encode()).hexdigest()[:16]


def _as_before(spec: RunSpec) -> str:
    """The spec without the knobs that have the value of runs that are older than the knob."""
    neutral = {knob.key for knob in spec.declared if knob.before is not None and spec.knobs[knob.key] == knob.before}
    return replace(spec, knobs={key: value for key, value in spec.knobs.items() if key not in neutral}).to_json()


def curves(lesson: Lesson, runs: Runs) -> dict[str, dict[str, list[float]]]:
    """Each metric of the picture for each run: the mean over its seeds, by at most POINTS equal stretches of steps."""
    return {key: {name: [float(f"{value:.4g}") for value in np.mean([_stretches(seed, key) for seed in seeds], 0)]
                  for name, seeds in runs.items()} for key in lesson.picture}


def _stretches(logged: Logged, key: str) -> np.ndarray:
    """The values (T,) of a metric as the means of min(T, POINTS) equal stretches."""
    _, values = logged[key]
    return np.array([part.mean() for part in np.array_split(values, min(POINTS, values.size))])


@lru_cache(maxsize=1)
def _kept() -> dict[str, Any]:
    return dict(json.loads(FILE.read_text("utf-8")))
