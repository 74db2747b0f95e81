"""Score stored completions with a reward model: a run of the lab, or a published model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from labcore.catalog.families.process import OF_PUBLISHED
from labcore.llm.nets.scorer import load_scorer, scores, scores_steps
from labcore.llm.nets.text_scorer import TextScorer
from labcore.llm.nets.text_step_scorer import TextStepScorer
from labcore.llm.probes.answer import reader
from labcore.llm.process_rewards import scores_by, steps_for, totals
from labcore.llm.rendering import encode_answers
from labcore.llm.reward_models import published
from labcore.llm.steps import step_texts
from labcore.runs.spec.activity import report
from labcore.runs.spec.model_names import is_published, parse, reward_model_of
from labcore.tasks.stored_completions import SCORING, Scores, Stored

AT_ONCE = 64  # completions
LOWEST, DTYPE = "lowest", "fp32"


def by_reward_model(name: str, knobs: Mapping[str, Any] = OF_PUBLISHED) -> Scores:
    """Return a function that scores completions with the reward model `name`: RUN, RUN@STEP, or the folder or hub id of
    a published model, which is loaded with `knobs` as in `load_step_scorer`.

    A run's model uses its own tokenizer and chat template. The score by a model of steps is its lowest score. Raises
    LabError if it is not a reward model, or cannot be read.
    """
    if is_published(name):
        return _in_parts(_of_published(published(name, knobs)))
    folder, session = reward_model_of(name), reader(parse(name).pinned.name, {}, 0)
    model = load_scorer(folder, name).to(session.device)

    def some(rows: Sequence[Stored]) -> list[float]:
        prompts, completions = encode_answers(session.rendering, [row.problem for row in rows],
                                              [row.text for row in rows], session.context, session.device,
                                              [row.cut for row in rows])
        if scores_steps(model):
            found = scores_by(session, model, [row.problem for row in rows], steps_for(session, model, completions))
            return totals(found, LOWEST)
        whole: list[float] = scores(model, prompts, completions, str(session.knobs["dtype"]), session.room).tolist()
        return whole

    return _in_parts(some)


def _of_published(model: TextScorer | TextStepScorer) -> Scores:
    def some(rows: Sequence[Stored]) -> list[float]:
        problems, texts = [row.problem for row in rows], [row.text for row in rows]
        if isinstance(model, TextStepScorer):
            return totals(model.scores(problems, [step_texts(text, model.separator) for text in texts], DTYPE), LOWEST)
        found: list[float] = model.scores(problems, texts, any(row.problem.turns for row in rows), DTYPE).tolist()
        return found

    return some


def _in_parts(some: Scores) -> Scores:
    def all_of(rows: Sequence[Stored]) -> list[float]:
        found: list[float] = []
        for start in range(0, len(rows), AT_ONCE):
            report(SCORING, start, len(rows))
            found += some(rows[start:start + AT_ONCE])
        return found

    return all_of
