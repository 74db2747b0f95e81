"""Presets as specs of runs, and the preset whose settings a run has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from labcore.catalog.knob import Value
from labcore.catalog.presets import PRESETS, Preset
from labcore.runs.spec.run_spec import RunSpec, make


def spec_of(preset: Preset, seed: int = 0) -> RunSpec:
    """The run of a preset."""
    return make(kind=preset.kind, algorithm_key=preset.algorithm, task_key=preset.task, knobs=preset.knobs, seed=seed,
                steps=preset.steps)


def unwatched(spec: RunSpec) -> RunSpec:
    """A copy of the spec without a pace and without probes, for runs that nobody watches. It learns the same."""
    return replace(spec, knobs={**spec.knobs, **{key: value for key, value in _off(spec).items() if key in spec.knobs}})


def preset_of(spec: RunSpec) -> Preset | None:
    """The preset whose settings a run has; None where there is none.

    Its seed, pace and probes do not matter. Its number of steps does, because a preset shows its result after that
    many.
    """
    if spec.mix or spec.data or spec.parent or spec.model != spec.kind_row.model:
        return None
    return next((each for each in PRESETS.values() if (each.kind, each.algorithm, each.task, each.steps) == (
        spec.kind, spec.algorithm, spec.task, spec.steps) and _settings(each.key) == _compared(spec)), None)


@cache
def _settings(key: str) -> Mapping[str, Value]:
    return _compared(spec_of(PRESETS[key]))


def _compared(spec: RunSpec) -> Mapping[str, Value]:
    """The knobs that say what a run learns."""
    return {key: value for key, value in spec.knobs.items() if key not in _off(spec)}


def _off(spec: RunSpec) -> Mapping[str, Value]:
    """The knobs that only who looks at a run needs, as they are where nobody does."""
    return {**spec.kind_row.unwatched, "probes": False}
