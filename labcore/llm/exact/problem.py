"""A run's problem, enumerated: its prompts, every completion, and what each of them earns on average."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from labcore.catalog import choices
from labcore.llm.batch import Prompts, decode
from labcore.llm.exact.enumeration import Space, completions
from labcore.llm.generation import Generated
from labcore.llm.networks import REFERENCE
from labcore.llm.rendering import encode_prompts
from labcore.llm.rewards import reward, verified
from labcore.llm.session import LlmSession
from labcore.tasks.enumerable import Enumerable
from labcore.tasks.task import Problem

VERIFIER = "verifier"  # the source where the loop has no other


@dataclass(frozen=True)
class Enumerated:
    """P problems with the N completions of `space`; `texts` (N) and their mean rewards (P, N) float64, with these
    knobs of the reward (`rewarded_by`)."""

    problems: list[Problem]
    prompts: Prompts
    space: Space
    texts: list[str]
    rewards: Tensor
    rewarded: Mapping[str, Any]


def enumerate_problem(session: LlmSession, task: Enumerable) -> Enumerated:
    """Every completion of every prompt of `task`, with the rewards of the source that the run has chosen.

    Raises:
        LabError: there are too many.
    """
    tokenizer = session.tokenizer
    problems = [task.problem(prompt) for prompt in task.prompts]
    prompts = encode_prompts(session.rendering, problems, session.context - 1, session.device)
    space = completions(range(len(tokenizer)), task.length, tokenizer.eos_token_id, device=session.device)
    texts = decode(tokenizer, space.completions, session.rendering.ends)
    whole = space.completions.repeated(len(problems))
    earned = _mean_rewards(session, problems, Generated(prompts, whole, texts * len(problems)))
    return Enumerated(problems, prompts, space, texts, earned.view(len(problems), -1).to(session.device),
                      rewarded_by(session))


def _mean_rewards(session: LlmSession, problems: list[Problem], generated: Generated) -> Tensor:
    """What each completion earns on average, before shaping; where rewards are flipped, that is known too. (P·N,)"""
    knobs: Mapping[str, Any] = session.knobs
    source = knobs.get("reward_source", VERIFIER)
    if source == "noisy_verifier":
        flipped, true = knobs["reward_noise"], verified(session, problems, generated).total
        mean: Tensor = (1 - flipped) * true + flipped * (1 - true)
        return mean
    return verified(session, problems, generated).total if source == VERIFIER else reward(
        session, problems, generated).total


def rewarded_by(session: LlmSession) -> dict[str, Any]:
    """The knobs that the mean rewards depend on, as they are now: they may be moved during a run."""
    source = str(session.knobs.get("reward_source", VERIFIER))
    return {"reward_source": source} | {key: session.knobs[key] for key in choices.REWARD[source].needs}


def effective_beta(session: LlmSession) -> float:
    """β of the objective: 0 where the KL is only measured or nothing is compared with a reference, and as an adaptive
    controller has moved it."""
    if session.knobs.get("kl_placement") == "off" or REFERENCE not in session.models:
        return 0.0
    return float(session.in_force["beta"] if "kl_placement" in session.knobs else session.knobs["beta"])

