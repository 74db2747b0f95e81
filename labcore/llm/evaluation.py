"""Measuring a policy by sampling fresh prompts: what the loops that do not sample need to say how good it is."""

from __future__ import annotations

from dataclasses import dataclass

from labcore.llm.generation import Generated, Sampling, generate, token_logprobs
from labcore.llm.measures import kl_metrics, score_metrics
from labcore.llm.rewards import Rewards, verified
from labcore.llm.session import LlmSession
from labcore.tasks.task import Problem


@dataclass(frozen=True)
class Evaluation:
    """Metrics of one completion for each of `eval_prompts` fresh prompts, and what they were made from."""

    metrics: dict[str, float]
    problems: list[Problem]
    generated: Generated
    rewards: Rewards


def evaluate(session: LlmSession) -> Evaluation:
    """Sample with the session's sampling knobs, verify, and with a reference measure the KL to it."""
    problems = session.task.problems(int(session.knobs["eval_prompts"]), session.rng)
    generated = generate(session, session.policy, problems, 1, Sampling.of(session.knobs))
    completions, rewards = generated.completions, verified(session, problems, generated)
    metrics = score_metrics(rewards, completions)
    if not session.spec.task_row.verifiable:
        metrics = {key: value for key, value in metrics.items() if key.startswith("completions/")}
    if "reference" in session.models:
        ref_logprobs = token_logprobs(session, session.reference, generated.prompts, completions)
        metrics |= kl_metrics(completions.logprobs, ref_logprobs, completions.mask)
    return Evaluation(metrics, problems, generated, rewards)
