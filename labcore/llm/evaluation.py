"""Measuring a policy by sampling fresh prompts: what the loops that do not sample need to say how good it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from labcore.llm.batch import Completions
from labcore.llm.loops import online
from labcore.tasks.task import Problem, Score

if TYPE_CHECKING:
    from labcore.llm.session import Session

@dataclass(frozen=True)
class Evaluation:
    """Metrics of one completion for each of `eval_prompts` fresh prompts, and what was seen (see `view`)."""

    metrics: dict[str, float]
    seen: tuple[list[Problem], Completions, list[str], list[Score]]


def evaluate(session: Session) -> Evaluation:
    """Sample with the session's sampling knobs, score, and with a reference measure the KL to it."""
    problems = session.task.problems(int(session.knobs["eval_prompts"]), session.rng)
    prompts, completions, texts = online.complete(session, session.policy, problems, 1)
    scores = [session.task.score(problem, text) for problem, text in zip(problems, texts, strict=True)]
    metrics = online.score_metrics(scores, completions)
    if not session.spec.task_row.verifiable:
        metrics = {key: value for key, value in metrics.items() if key.startswith("completions/")}
    if "reference" in session.models:
        ref_logprobs = online.score_tokens(session, session.reference, prompts, completions)
        metrics |= online.kl_metrics(completions.logprobs, ref_logprobs, completions.mask)
    return Evaluation(metrics, (problems, completions, texts, scores))
