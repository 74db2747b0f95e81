"""Measuring a policy by sampling fresh prompts: what the loops that do not sample need to say how good it is."""

from __future__ import annotations

from dataclasses import dataclass

from labcore.llm.generation import Generated, Sampling, generate, reference_logprobs
from labcore.llm.measures import kl_metrics, score_metrics
from labcore.llm.networks import REFERENCE
from labcore.llm.rewards import Rewards, verified
from labcore.llm.session import LlmSession
from labcore.spec.activity import part_of
from labcore.tasks.task import Problem


@dataclass(frozen=True)
class Evaluation:
    """Metrics of one completion for each of `eval_prompts` fresh prompts, and what they were made from."""

    metrics: dict[str, float]
    problems: list[Problem]
    generated: Generated
    rewards: Rewards


@part_of("evaluation")
def evaluate(session: LlmSession) -> Evaluation:
    """Sample with the session's sampling knobs, verify, and with a reference measure the KL to it."""
    with session.probes.evaluating():
        return _evaluate(session)


def _evaluate(session: LlmSession) -> Evaluation:
    problems = session.task.problems(int(session.knobs["eval_prompts"]), session.rng)
    generated = generate(session, session.policy, problems, 1, Sampling.of(session.knobs))
    completions, rewards = generated.completions, verified(session, problems, generated)
    metrics = score_metrics(rewards, completions)
    if not session.spec.task_row.verifiable:
        metrics = {key: value for key, value in metrics.items() if key.startswith("completions/")}
    return Evaluation(metrics | kl_to_reference(session, generated), problems, generated, rewards)


def kl_to_reference(session: LlmSession, generated: Generated) -> dict[str, float]:
    """The KL of the policy to its reference from what the policy has just sampled; nothing where none is held."""
    if REFERENCE not in session.models:
        return {}
    completions = generated.completions
    assert completions.logprobs is not None
    reference = reference_logprobs(session, generated.prompts, completions, completions.logprobs)
    return kl_metrics(completions.logprobs, completions.logprobs if reference is None else reference, completions.mask)
