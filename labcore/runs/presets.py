"""Presets as specs of runs, and the preset whose settings a run has."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from labcore.catalog.knob import Value
from labcore.catalog.presets import PRESETS, Preset
from labcore.runs.spec.run_spec import RunSpec, make


def spec_of(preset: Preset, seed: int = 0, watched: bool = True) -> RunSpec:
    """The run of a preset. `watched`: somebody looks at it, so a maze keeps its pace and a model its probes."""
    return make(kind=preset.kind, algorithm_key=preset.algorithm, task_key=preset.task, knobs=preset.knobs, seed=seed,
                steps=preset.steps) if watched else _unwatched(preset, seed)


def _unwatched(preset: Preset, seed: int) -> RunSpec:
    spec = spec_of(preset, seed)
    off = {**spec.kind_row.unwatched, "probes": False}
    return make(kind=spec.kind, algorithm_key=spec.algorithm, task_key=spec.task, seed=seed, steps=spec.steps,
                knobs={**spec.knobs, **{key: value for key, value in off.items() if key in spec.knobs}})


def preset_of(spec: RunSpec) -> Preset | None:
    """The preset with the settings of a run, whatever its seed, steps and pace; None where there is none."""
    if spec.mix or spec.data or spec.parent or spec.model != spec.kind_row.model:
        return None
    return next((each for each in PRESETS.values() if (each.kind, each.algorithm, each.task) == (
        spec.kind, spec.algorithm, spec.task) and _settings(each.key) == _compared(spec)), None)


@cache
def _settings(key: str) -> Mapping[str, Value]:
    return _compared(spec_of(PRESETS[key]))


def _compared(spec: RunSpec) -> Mapping[str, Value]:
    """The knobs that say what a run learns."""
    return {key: value for key, value in spec.knobs.items() if key not in spec.kind_row.unwatched}
