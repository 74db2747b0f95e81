"""The context that a run's teacher has beside the prompt: the task's answer, or a right completion of the same group.

A teacher that is the policy's own earlier self knows more than the policy through this context alone, which is
self-distillation.

Source: Shenfeld et al. 2026, arXiv:2601.19897 (SDFT); Hübotter et al. 2026, arXiv:2601.20802 (SDPO).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from labcore.catalog import choices
from labcore.llm.batch import Prompts
from labcore.llm.rendering import encode_prompts
from labcore.llm.session import LlmSession
from labcore.maths.call import call, member
from labcore.tasks.task import Problem, Turn

NOTHING = choices.TEACHER_CONTEXT.names[0]


def nothing(problems: Sequence[Problem]) -> list[str]:
    """The teacher sees the prompt alone."""
    return [""] * len(problems)


def demonstration(problems: Sequence[Problem]) -> list[str]:
    """The task's own answer to each completion's problem; "" where it has none. As in TRL's SDFTTrainer."""
    return [problem.answer.strip() for problem in problems]


def success(problems: Sequence[Problem], texts: Sequence[str], exact: Sequence[bool], group_size: int) -> list[str]:
    """The first other completion of each one's group that is wholly right; "" where there is none. As in TRL's
    SDPOTrainer: no completion is its own context."""
    found = []
    for row in range(len(problems)):
        start = row // group_size * group_size
        right = (texts[other] for other in range(start, start + group_size) if other != row and exact[other])
        found.append(next(right, ""))
    return found


def with_context(problem: Problem, context: str, template: str) -> Problem:
    """The problem with the `context` in its prompt; in a conversation it is in the last turn."""
    prompt = template.replace("\\n", "\n").replace("{context}", context).replace("{prompt}", problem.prompt)
    turns = (*problem.turns[:-1], Turn(problem.turns[-1].role, prompt)) if problem.turns else ()
    return replace(problem, prompt=prompt, turns=turns)


def teacher_prompts(session: LlmSession, problems: Sequence[Problem], texts: Sequence[str], exact: Tensor,
                    width: int) -> tuple[Prompts | None, Tensor | None]:
    """The teacher's prompt of each of B completions, and whether it has a context (B,); both are None if the run's
    teacher reads no context. `width` is the number of tokens of the longest completion.

    Raises:
        LabError: a prompt with its context is too long for the model.
    """
    knobs, size = session.knobs, len(texts) // len(problems)
    if knobs.get("teacher_context", NOTHING) == NOTHING:
        return None, None
    asked = [problem for problem in problems for _ in range(size)]
    contexts: list[str] = call(member(choices.TEACHER_CONTEXT, str(knobs["teacher_context"])), knobs, {
        "problems": asked, "texts": texts, "exact": exact.tolist(), "group_size": size})
    seen = [with_context(problem, context, str(knobs["context_template"])) if context else problem
            for problem, context in zip(asked, contexts, strict=True)]
    prompts = encode_prompts(session.rendering, seen, session.context - width, session.device)
    return prompts, torch.tensor([bool(context) for context in contexts], device=session.device)


def some_with_context(session: LlmSession, problems: list[Problem]) -> list[Problem]:
    """A share `context_share` of the problems with their own answer as context, so that a model learns to use one."""
    share = float(session.knobs.get("context_share", 0.0))
    if not share:
        return problems
    drawn, template = session.rng.random(len(problems)) < share, str(session.knobs["context_template"])
    return [with_context(problem, problem.answer, template) if taken else problem
            for problem, taken in zip(problems, drawn, strict=True)]
