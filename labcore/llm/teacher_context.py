"""The context that a run's teacher reads in addition to the prompt: the task's answer, a right completion of the same
group, or the task's feedback on the completion.

In self-distillation the teacher is an earlier version of the policy, so it knows more than the policy only through this
context.

Source: Shenfeld et al. 2026, arXiv:2601.19897 (SDFT); Hübotter et al. 2026, arXiv:2601.20802 (SDPO).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from labcore.catalog import choices
from labcore.catalog.families.distillation import CONTEXT_TEMPLATE, FEEDBACK_TEMPLATE
from labcore.llm.batch import Prompts, padded_prompts
from labcore.llm.session import LlmSession
from labcore.maths.call import call, member
from labcore.tasks.task import Problem, TextTask, Turn, feedback_on, privileged

NOTHING = choices.TEACHER_CONTEXT.names[0]
PARTS = re.compile(r"\\n|\{context\}|\{prompt\}")


class Context(NamedTuple):
    """A text that the teacher reads in addition to a prompt ("": none), and the key of the knob with its template."""

    text: str
    template: str = CONTEXT_TEMPLATE.key


def _or_nothing(text: str) -> str:
    """The text; "" if it is blank."""
    return text if text.strip() else ""


def nothing(problems: Sequence[Problem]) -> list[Context]:
    """No context: the teacher reads the prompt alone."""
    return [Context("")] * len(problems)


def demonstration(problems: Sequence[Problem]) -> list[Context]:
    """The task's answer to each problem; no context if it has none. As in TRL's SDFTTrainer."""
    return [Context(_or_nothing(privileged(problem))) for problem in problems]


def success(problems: Sequence[Problem], texts: Sequence[str], exact: Sequence[bool], group_size: int) -> list[Context]:
    """The first other completion of the same group that is right; no context if there is none. No completion is its own
    context. As in TRL's SDPOTrainer."""
    found = []
    for row in range(len(problems)):
        start = row // group_size * group_size
        right = (texts[other] for other in range(start, start + group_size) if other != row and exact[other])
        found.append(Context(next(right, "")))
    return found


def feedback(task: TextTask, problems: Sequence[Problem], texts: Sequence[str], exact: Sequence[bool]) -> list[Context]:
    """The feedback on each completion (`tasks.task.feedback_on`): the row's own column for every completion, as in
    TRL's SDPOTrainer with `include_environment_feedback` and without `use_successful_as_teacher`; the task's own
    feedback for the wrong ones only."""
    return [Context(_or_nothing(feedback_on(task, problem, text, right)), FEEDBACK_TEMPLATE.key)
            for problem, text, right in zip(problems, texts, exact, strict=True)]


def success_or_feedback(task: TextTask, problems: Sequence[Problem], texts: Sequence[str], exact: Sequence[bool],
                        group_size: int) -> list[Context]:
    """Another, right completion of the group if there is one, otherwise feedback on the completion. As in TRL's
    SDPOTrainer with `environment_feedback_only_without_solution`."""
    return [of_group if of_group.text else said for of_group, said in zip(
        success(problems, texts, exact, group_size), feedback(task, problems, texts, exact), strict=True)]


def with_context(problem: Problem, context: str, template: str) -> Problem:
    """The problem with the `context` in its prompt; in a conversation it is in the last turn."""
    parts = {r"\n": "\n", "{context}": context, "{prompt}": problem.prompt}
    prompt = PARTS.sub(lambda part: parts[part[0]], template)  # in one pass, since a context may contain such signs
    turns = (*problem.turns[:-1], Turn(problem.turns[-1].role, prompt)) if problem.turns else ()
    return replace(problem, prompt=prompt, turns=turns)


def teacher_prompts(session: LlmSession, problems: Sequence[Problem], texts: Sequence[str], exact: Tensor,
                    width: int) -> tuple[Prompts | None, Tensor | None]:
    """The teacher's prompt of each of B completions, and whether it has a context (B,); both are None if the run's
    teacher reads no context. `width` is the number of tokens of the longest completion. A context that leaves no room
    for that many tokens is left out, and a record says so.
    """
    knobs, size = session.knobs, len(texts) // len(problems)
    if knobs.get("teacher_context", NOTHING) == NOTHING:
        return None, None
    asked = [problem for problem in problems for _ in range(size)]
    contexts: list[Context] = call(member(choices.TEACHER_CONTEXT, str(knobs["teacher_context"])), knobs, {
        "task": session.task, "problems": asked, "texts": texts, "exact": exact.tolist(), "group_size": size})
    seen = session.rendering.prompts([with_context(problem, each.text, str(knobs[each.template])) if each.text else
                                      problem for problem, each in zip(asked, contexts, strict=True)])
    long = [place for place, ids in enumerate(seen) if contexts[place].text and len(ids) > session.context - width]
    if long:
        session.say_once("Some completions teach nothing: the teacher's prompt with its context leaves no room for "
                         f"them in the model's {session.context:,} tokens. Lower `max_new_tokens`, or choose a model "
                         "with a longer context.")
        for place, ids in zip(long, session.rendering.prompts([asked[place] for place in long]), strict=True):
            seen[place] = ids
    there = [bool(each.text) and place not in long for place, each in enumerate(contexts)]
    return (padded_prompts(seen, session.rendering.padding, session.device),
            torch.tensor(there, device=session.device))


def some_with_context(session: LlmSession, problems: list[Problem]) -> list[Problem]:
    """A share `context_share` of the problems with their own answer as context, so that a model learns to use one."""
    share = float(session.knobs.get("context_share", 0.0))
    if not share:
        return problems
    drawn, template = session.rng.random(len(problems)) < share, str(session.knobs["context_template"])
    return [with_context(problem, problem.answer, template) if taken else problem
            for problem, taken in zip(problems, drawn, strict=True)]
