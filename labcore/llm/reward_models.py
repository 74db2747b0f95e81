"""Load the reward models that a run's knobs name, and check its rewards before the first step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedTokenizerBase

from labcore.catalog import choices, reward_terms
from labcore.errors import LabError, quoted
from labcore.llm import checkpoint
from labcore.llm.nets.folder import config_of, find
from labcore.llm.nets.scorer import SEPARATOR, check_tokenizer, load_scorer, scores_steps
from labcore.llm.nets.text_scorer import TextScorer, load_text_scorer, scores_wholes
from labcore.llm.nets.text_scorer import check_kind as check_wholes
from labcore.llm.nets.text_step_scorer import TextStepScorer, load_step_scorer
from labcore.llm.nets.text_step_scorer import check_kind as check_steps
from labcore.runs.spec.model_names import is_published, members, reward_model_of
from labcore.tasks import reward_call
from labcore.tasks.judge import Judge
from labcore.tasks.steps import StepTask
from labcore.tasks.task import TextTask


def reward_models(knobs: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase, resume: Path | None) -> nn.ModuleList:
    """The reward models of `knobs`: from the checkpoint `resume`, from the runs that trained them, or published ones
    from their folders, of which no checkpoint holds a copy. Raises LabError if one of them is not there, or has another
    tokenizer than the policy."""
    found: list[nn.Module] = []
    for place, name in enumerate(members(str(knobs["reward_model"]))):
        kept = resume / checkpoint.scorer_folder(place) if resume else None
        if is_published(name):
            found.append(load_step_scorer(name, knobs) if choices.scores_steps(knobs) else load_text_scorer(name))
            continue
        folder = kept if kept and kept.is_dir() else reward_model_of(name)
        found.append(load_scorer(folder, name))
        _check_steps(knobs, name, found[-1])
        if folder != kept:
            check_tokenizer(folder, name, tokenizer)
    return nn.ModuleList(found)


def published(name: str, knobs: Mapping[str, Any]) -> TextScorer | TextStepScorer:
    """Load the published reward model `name`. Its config.json says whether it scores whole answers or steps; `knobs` as
    in `load_step_scorer`. Raises LabError if it is no reward model, or cannot be used."""
    def check(folder: Path | str, config: Mapping[str, Any]) -> None:
        (check_wholes if scores_wholes(config) else check_steps)(folder, config)

    wholes = scores_wholes(config_of(find(name, check)))
    return load_text_scorer(name) if wholes else load_step_scorer(name, knobs)


def _check_steps(knobs: Mapping[str, Any], name: str, scorer: nn.Module) -> None:
    """Check that a reward model scores whole answers or steps, as the run's reward source requires. Raises LabError if
    it scores the other kind, or learnt steps with another `step_separator` than the run's."""
    wanted = choices.scores_steps(knobs)
    if wanted and not scores_steps(scorer):
        raise LabError(f"The reward model {name} scores whole answers, not steps: set `reward_source=reward_model`, or "
                       "set `reward_model` to a run of the algorithm prm.")
    if not wanted and scores_steps(scorer):
        raise LabError(f"The reward model {name} scores the steps of answers: set `reward_source=process_reward`, or "
                       "set `reward_model` to a run of the algorithm reward_model.")
    theirs = getattr(scorer.config, SEPARATOR, None)
    if wanted and theirs != knobs[SEPARATOR]:
        raise LabError(f"The process reward model {name} learnt steps with `step_separator` {quoted(theirs)}, and this "
                       f"run cuts its completions by {quoted(knobs[SEPARATOR])}: set `step_separator` to the model's.")


def check_rewards(knobs: Mapping[str, Any], task: TextTask) -> None:
    """Check that each reward function is there and finds its columns in the task's rows, and that the judge may be
    asked. Raises LabError if a function or a column is missing, or the judge may not be asked."""
    reward_call.check_columns(reward_terms.of(knobs), reward_call.columns_of(task))
    for source in map(choices.REWARD.__getitem__, choices.sources_of(knobs)):
        if source.process and not source.scorer and not isinstance(task, StepTask):
            raise LabError(f"The reward source `{source.key}` asks the task's verifier about unfinished answers, and "
                           "this one judges whole answers only: set `reward_source=verifier`, or train a process "
                           "reward model and set `reward_source=process_reward`.")
    if reward_terms.JUDGE in choices.sources_of(knobs):
        Judge.of(knobs)
