"""Score stored completions with a reward model: a run of the lab, or a published model."""

from __future__ import annotations

from collections.abc import Sequence

from labcore.llm.nets.scorer import load_scorer, scores, scores_steps
from labcore.llm.nets.text_scorer import load_text_scorer
from labcore.llm.probes.answer import reader
from labcore.llm.process_rewards import lowest_scores
from labcore.llm.rendering import encode_answers
from labcore.runs.spec.activity import report
from labcore.runs.spec.model_names import is_published, parse, reward_model_of
from labcore.tasks.stored_completions import SCORING, Scores, Stored

AT_ONCE = 64  # completions


def by_reward_model(name: str) -> Scores:
    """Return the scores of the reward model `name`: RUN, RUN@STEP, or the folder or hub id of a sequence classifier.

    A run's model uses its own tokenizer and chat template. One that scores steps gives the lowest score of an answer.

    Raises:
        LabError: it is not a reward model, or cannot be read.
    """
    if is_published(name):
        scorer = load_text_scorer(name)
        return _in_parts(lambda rows: scorer.scores([row.problem for row in rows], [row.text for row in rows],
                                                    any(row.problem.turns for row in rows), "float32").tolist())
    folder, session = reward_model_of(name), reader(parse(name).pinned.name, {}, 0)
    model = load_scorer(folder, name).to(session.device)

    def some(rows: Sequence[Stored]) -> list[float]:
        prompts, completions = encode_answers(session.rendering, [row.problem for row in rows],
                                              [row.text for row in rows], session.context, session.device,
                                              [row.cut for row in rows])
        if scores_steps(model):
            return lowest_scores(session, model, [row.problem for row in rows], completions)
        found: list[float] = scores(model, prompts, completions, str(session.knobs["dtype"]), session.room).tolist()
        return found

    return _in_parts(some)


def _in_parts(some: Scores) -> Scores:
    def all_of(rows: Sequence[Stored]) -> list[float]:
        found: list[float] = []
        for start in range(0, len(rows), AT_ONCE):
            report(SCORING, start, len(rows))
            found += some(rows[start:start + AT_ONCE])
        return found

    return all_of
