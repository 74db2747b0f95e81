"""Answers that a model writes for the supervised loop: the policy's own, or the teacher's."""

from __future__ import annotations

from dataclasses import replace

from transformers import PreTrainedModel

from labcore.llm.generation import Sampling, generate
from labcore.llm.networks import POLICY, TEACHER
from labcore.llm.rendering import Examples
from labcore.llm.session import LlmSession
from labcore.runs.spec.activity import part_of
from labcore.tasks.task import Problem


def next_writer(session: LlmSession) -> str:
    """The network that writes the answers of the next batch; empty where they are given.

    Each batch is wholly the policy's with probability λ, as in TRL's GKDTrainer.
    """
    share = float(session.knobs.get("on_policy_share", 0))
    if share == 1 or (share > 0 and session.rng.random() < share):
        return POLICY
    return TEACHER if session.knobs.get("answers") == "teacher" else ""


@part_of("answers to learn from")
def written(session: LlmSession, writer: str, problems: list[Problem]) -> tuple[list[Problem], Examples]:
    """The problems, each with an answer sampled by the network `writer`, and these examples as tokens. No gradient
    flows through the sampling."""
    model = session.models[writer]
    assert isinstance(model, PreTrainedModel)
    found = generate(session, model, problems, 1, Sampling.of(session.knobs))
    asked = [replace(problem, answer=text) for problem, text in zip(problems, found.texts, strict=True)]
    return asked, Examples(found.prompts, found.completions, 0)
