"""The runs of a study: the runs that it needs, the runs that this lab already has, and the missing runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from labcore.analysis.studies.study import Setting, Study
from labcore.analysis.studies.verdict import Need
from labcore.errors import LabError
from labcore.runs import sweep
from labcore.runs.spec.model_names import model_of_name, read
from labcore.runs.spec.run_spec import RunSpec, make
from labcore.runs.store.rows import ACTIVE, STUDIES, RunRow
from labcore.runs.store.store import Store
from labcore.runs.traces import setting as setting_of

FINISHED = "finished"
HERE = Path(__file__).parent
_ANY = "a run's"  # placeholder for the ids of runs that are trained first, to compare settings
_YOURS = "a pretrained model"  # placeholder for the model that a study asks for


@dataclass(frozen=True)
class Runs:
    """The runs of a study in a lab: its runs by setting, one for each seed, and its reward models by seed."""

    of: Mapping[str, tuple[RunRow, ...]]
    scorers: tuple[RunRow, ...] = ()

    @property
    def all(self) -> tuple[RunRow, ...]:
        return (*self.scorers, *(row for rows in self.of.values() for row in rows))

    @property
    def active(self) -> bool:
        """Whether one of them is queued or running."""
        return any(row.state in ACTIVE for row in self.all)

    @property
    def counted(self) -> tuple[RunRow, ...]:
        """Its reward models and its finished runs, from which its result is computed."""
        return (*self.scorers, *(row for rows in self.finished().values() for row in rows))

    def finished(self) -> dict[str, tuple[RunRow, ...]]:
        """The finished runs, by setting."""
        return {label: tuple(row for row in rows if row.state == FINISHED) for label, rows in self.of.items()}


def scorer_specs(study: Study) -> list[RunSpec]:
    """The runs that a study needs first, one for each seed."""
    return [make(algorithm_key=study.scorer, task_key=study.task, knobs=study.scorer_knobs, seed=seed,
                 model=study.scorer_model or _model(study), steps=study.scorer_steps, threads=1,
                 data=_data(study), absent=_unnamed(study))
            for seed in range(study.scorers)]


def of_model(study: Study, model: str) -> Study:
    """Return the study with `model` filled in if it asks for one. Raises LabError if a model is given but not asked
    for, or asked for but not given."""
    if model and not study.asks_model:
        raise LabError(f"The study {study.key} has a fixed model: leave --model out.")
    if study.asks_model and not model:
        raise LabError(f"The study {study.key} needs a pretrained model: give --model with a Hugging Face folder, a "
                       "hub id or an earlier run on one.")
    return replace(study, model=model)


def _model(study: Study) -> str | None:
    """The model of a study's runs, of an earlier run its folder; None: the usual one."""
    return (model_of_name(study.model) if study.model else _YOURS) if study.asks_model else None


def _data(study: Study) -> str | None:
    return str(HERE / study.data) if study.data else None


def _unnamed(study: Study) -> bool:
    return study.asks_model and not study.model


def spec_of(study: Study, setting: Setting, seed: int, scorers: Sequence[str] = ()) -> RunSpec:
    """The spec of a setting's run with a seed; `scorers` are the ids of the runs that were trained first. Without these
    or without the model that the study asks for, the spec only serves to compare settings and cannot be started. Raises
    LabError if there are too few `scorers`, or they cannot be used."""
    knobs = {**study.knobs, **setting.knobs}
    if setting.members:
        knobs[study.scorer_knob] = ",".join(scorers[:setting.members])
    return make(algorithm_key=setting.algorithm, task_key=setting.task or study.task, knobs=knobs, seed=seed,
                model=_model(study), steps=study.steps, threads=1, data=_data(study),
                absent=study.asks_model and not (study.model and scorers))


def found(study: Study, rows: Iterable[RunRow]) -> Runs:
    """The study's runs among `rows`, which are sorted by newest first. Each seed has its newest run that did not fail,
    or its newest one if all failed.

    A run belongs to a study if it has the study's settings, whoever started it and whichever reward models it uses. If
    a study asks for a model and has none, only runs with the same model as its newest run count.
    """
    rows = _of_newest_model(study, list(rows)) if _unnamed(study) else rows
    wanted = {_text(study, _template(study, setting)): setting.label for setting in study.settings}
    scorer = _text(study, scorer_specs(study)[0]) if study.scorers else ""
    of: dict[str, dict[int, RunRow]] = {setting.label: {} for setting in study.settings}
    scorers: dict[int, RunRow] = {}
    for row in rows:
        if row.spec.parent or row.spec.steps not in (study.steps, study.scorer_steps):
            continue  # skips most runs cheaply
        text = _text(study, row.spec)
        taken = of[wanted[text]] if text in wanted else scorers if text == scorer else None
        if taken is not None and (row.spec.seed not in taken or _better(row, taken[row.spec.seed])):
            taken[row.spec.seed] = row
    return Runs({label: tuple(each[seed] for seed in sorted(each)) for label, each in of.items()},
                tuple(scorers[seed] for seed in sorted(scorers) if seed < study.scorers))


def _of_newest_model(study: Study, rows: list[RunRow]) -> list[RunRow]:
    """The rows with the same model as the study's newest run."""
    wanted = {_text(study, _template(study, setting)) for setting in study.settings}
    newest = next((row.spec.model for row in rows if row.spec.steps == study.steps
                   and _text(study, row.spec) in wanted), "")
    return [row for row in rows if row.spec.model == newest]


def missing(study: Study, runs: Runs, seeds: Sequence[int] | None = None,
            only: Collection[str] | None = None) -> list[RunSpec]:
    """List the runs to make next: the missing reward models, else the missing seeds of the settings, or of those with
    the labels `only`, all settings of a seed first. Empty while a reward model is still being trained. Raises LabError
    if a reward model did not finish, and running it again cannot produce it."""
    counted = {row.spec.seed for row in runs.scorers if row.state in (FINISHED, *ACTIVE)}
    if absent := [spec for spec in scorer_specs(study) if spec.seed not in counted]:
        return absent
    if any(row.state in ACTIVE for row in runs.scorers):
        return []
    ids = [row.id for row in runs.scorers]
    there = {(label, row.spec.seed) for label, rows in runs.of.items() for row in rows
             if row.state in (FINISHED, *ACTIVE)}
    return [spec_of(study, setting, seed, ids) for seed in seeds or study.seeds for setting in study.settings
            if (setting.label, seed) not in there and (only is None or setting.label in only)]


def every(study: Study, scorers: Sequence[str] = ()) -> list[RunSpec]:
    """All runs of a study, for an estimate of its time. While reward models are missing (`scorers` are those that
    exist), the verifier, which scores faster, takes their place."""
    there = len(scorers) >= study.scorers
    settings = [setting if there else _alone(setting) for setting in study.settings]
    first = [] if study.scorers and there else scorer_specs(study)
    return [*first, *(spec_of(study, setting, seed, scorers) for seed in study.seeds for setting in settings)]


def to_decide(study: Study, runs: Runs, need: Need) -> list[RunSpec]:
    """The runs that would decide a claim: first the missing seeds of the study, then more seeds of the deciding
    settings. Empty if more than `labcore.analysis.estimate.MOST` seeds would be needed."""
    if need.seeds is None:
        return []
    first = missing(study, runs)
    return first + [spec for spec in missing(study, runs, range(need.seeds), need.settings) if spec not in first]


def queue(store: Store, specs: Sequence[RunSpec]) -> str:
    """Queue runs of a study as a sweep; return its id. Wake the launcher to have them started."""
    if not specs:
        raise LabError("All runs of this study exist already: see its result.")
    return sweep.queue(store, specs, project=STUDIES)


def _template(study: Study, setting: Setting) -> RunSpec:
    """The spec of a setting without the runs that it learns from, for which `make` would search."""
    spec = spec_of(study, _alone(setting), 0)
    if not setting.members:
        return spec
    own = {key: value for key, value in setting.knobs.items() if key == "reward_source"}
    return replace(spec, knobs={**spec.knobs, **own, study.scorer_knob: ",".join([_ANY] * setting.members)})


def _alone(setting: Setting) -> Setting:
    """A copy of the setting with the verifier in place of a reward model, and with the usual teacher."""
    if not setting.members:
        return setting
    own = {"reward_source": "verifier"} if "reward_source" in setting.knobs else {}
    return replace(setting, members=0, knobs={**setting.knobs, **own})


def _text(study: Study, spec: RunSpec) -> str:
    """The settings that all runs of an arm share; the ids of runs that are trained first are left out."""
    if _unnamed(study):
        spec = replace(spec, model=_YOURS)
    if spec.data and Path(spec.data).name == study.data:  # the path depends on where the lab is installed
        spec = replace(spec, data=study.data)
    named = str(spec.knobs.get(study.scorer_knob) or "")
    shipped = (found := read(named)) is not None and bool(found.sft)  # a teacher that comes with the lab
    if study.scorers and named and not shipped:
        spec = replace(spec, knobs={**spec.knobs, study.scorer_knob: ",".join([_ANY] * len(named.split(",")))})
    return setting_of(spec)


def _better(row: RunRow, other: RunRow) -> bool:
    """Whether an older run counts in place of a newer one with its seed."""
    rank = {FINISHED: 0, **dict.fromkeys(ACTIVE, 1)}
    return rank.get(row.state, 2) < rank.get(other.state, 2)
