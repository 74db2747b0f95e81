"""Sources of the models of a run (`labcore.runs.spec.model_names` has their names).

A fork's base is that of the run at the root of its tree. Imports no torch; nothing is loaded here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from labcore.catalog.llm.models import MODELS
from labcore.errors import LabError
from labcore.runs.files import bases, storage
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import run_folder
from labcore.runs.spec.model_names import BASE, START, Model, no_run
from labcore.runs.spec.run_spec import BASE_SEED, RunSpec, base_spec


@dataclass(frozen=True)
class Source:
    """Where a model comes from: a `checkpoint` folder of the lab, a `weights` folder or hub id, or neither: random.

    `spec` is the run's, `folder` the folder from which it started; random weights are drawn with `spec.seed`.
    """

    spec: RunSpec
    checkpoint: Path | None = None
    weights: str | None = None


def spec_of(run: str) -> RunSpec:
    """The spec of a language-model run. Raises LabError where there is no such run, or it trains something else."""
    try:
        spec = RunSpec.in_folder(run_folder(run))
    except OSError as error:
        raise no_run(run) from error
    if spec.kind != "llm":
        raise LabError(f"The run {run} is no language model, so it answers no prompts: choose a run of the LLM lab.")
    return spec


def chats(run: str, spec: RunSpec) -> bool:
    """True if a run writes its prompts by a chat template."""
    how, found = spec.knobs.get("template", "off"), checkpoint.steps(run_folder(run))
    return how == "chatml" or bool(
        how == "auto" and found and storage.has(found[-1][1] / "policy" / "chat_template.jinja"))


def steps(run: str) -> list[int]:
    """The steps of a run that have a checkpoint, in order."""
    return [step for step, _ in checkpoint.steps(run_folder(run))]


def with_checkpoint(runs: Sequence[str]) -> list[str]:
    """The runs that have a checkpoint."""
    return [run for run, found in zip(runs, storage.each(steps, runs), strict=True) if found]


def offered(run: str) -> list[Model]:
    """The models of a run in the order of their training: the start and the base if there are any, its checkpoints.

    The checkpoint of step 0 is the base itself. Raises LabError as `spec_of`.
    """
    first = [Model(run, BASE)]
    if base_spec(_root(spec_of(run))):
        first.insert(0, Model(run, START))
    return first + [Model(run, step=step) for step in steps(run) if step]


def source(model: Model) -> Source:
    """The source to load `model` from. Raises LabError if the run or its checkpoint is missing, or the weights from
    which it started are gone."""
    spec = spec_of(model.run)
    if model.stage == START:
        root = _root(spec)
        if not base_spec(root):
            raise LabError(f"The run {model.run} started from weights that were not trained here, so there is no "
                           f"start before them: take base:{model.run}.")
        return Source(replace(root, seed=BASE_SEED))
    if model.stage == BASE:
        return _base(_root(spec), model.run)
    step, found = model.pinned.step, dict(checkpoint.steps(run_folder(model.run)))
    if step not in found:
        raise LabError(f"The run {model.run} has no checkpoint of step {step} any more: take one of "
                       f"{', '.join(map(str, found)) or 'none, it has not made any yet'}.")
    return Source(spec, checkpoint=storage.fetch(found[step]))


def base_folder(spec: RunSpec) -> Path | None:
    """The folder of the base model that SFT made for `spec`; None if the run starts from given or random weights.
    Raises LabError if the base model is gone, or the file that the SFT run learnt from is."""
    sft = base_spec(spec)
    if sft is None:
        return None
    folder = bases.readable(sft.hash())
    if folder is None:
        raise LabError(f"The base model of {spec.task!r} is gone from {bases.folder(sft.hash())}: start a run of that "
                       "task, which makes it again.")
    return folder / "model"


def _base(root: RunSpec, run: str) -> Source:
    if folder := base_folder(root):
        return Source(root, weights=str(folder))
    return Source(root, weights=None if root.model in MODELS else root.model)


def _root(spec: RunSpec) -> RunSpec:
    """The spec of the run at the root of a tree of forks, as far as its parents are still there."""
    while spec.parent:
        try:
            spec = spec_of(spec.parent[0])
        except LabError:  # deleted: its fork knows the same task and model
            return replace(spec, parent=None)
    return spec
