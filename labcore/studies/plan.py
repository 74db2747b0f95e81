"""The runs of a study: which there must be, and which of them this lab has already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from labcore.spec.run_spec import RunSpec, make
from labcore.store.rows import RunRow
from labcore.studies.study import Setting, Study

SCORER = "reward_model"  # the algorithm, and the knob that names its run


def scorer_specs(study: Study) -> list[RunSpec]:
    """The reward models that a study needs first, one for each seed."""
    return [make(algorithm_key=SCORER, task_key=study.task, knobs=study.scorer_knobs, seed=seed,
                 steps=study.scorer_steps, threads=1) for seed in range(study.scorers)]


def spec_of(study: Study, setting: Setting, seed: int, scorers: Sequence[str] = ()) -> RunSpec:
    """The run of a setting with a seed; `scorers` are the ids of the study's reward models."""
    knobs = {**study.knobs, **setting.knobs}
    if setting.members:
        knobs[SCORER] = ",".join(scorers[:setting.members])
    return make(algorithm_key=setting.algorithm, task_key=setting.task or study.task, knobs=knobs, seed=seed,
                steps=study.steps, threads=1)
