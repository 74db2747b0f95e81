"""Numbers that a run keeps for each prompt: the optimal value of A*-PO, and the tracked mean reward of SPO.

They are kept by the text of the prompt, the newest `MOST` of them, and a checkpoint holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from labcore.catalog import choices
from labcore.llm.generation import Sampling, generate
from labcore.llm.rewards import earned
from labcore.llm.session import LlmSession
from labcore.maths.advantages import soft_value
from labcore.maths.schedules import tracked
from labcore.runs.spec.activity import part_of
from labcore.tasks.task import Problem
from labcore.tasks.task import prompt_key as key

MOST = 20_000  # prompts that are remembered
PRIOR = 8.0  # completions that the first guess of a tracked prompt counts as


def prompt_values(session: LlmSession, problems: Sequence[Problem]) -> Tensor | None:
    """The number of each prompt that the run's advantage compares with; None where it asks for none. (P,)"""
    name = choices.ADVANTAGE[session.knobs["advantage"]].of_prompt
    return SOURCES[name](session, problems) if name else None


@part_of("values of new prompts")
def optimal_values(session: LlmSession, problems: Sequence[Problem]) -> Tensor:
    """V* of each prompt, by samples of the reference when the prompt is new. (P,) reward, NaN where none was scored."""
    knobs, beta = session.knobs, float(session.knobs["value_beta"])
    known = {name for name, (_, *of) in session.of_prompts.items() if of == [beta]}  # one of another β is asked again
    fresh = list({key(each): each for each in problems if key(each) not in known}.values())
    if fresh:
        samples = int(knobs["value_samples"])
        generated = generate(session, session.reference, fresh, samples, Sampling.of(knobs))
        session.tokens += int(generated.completions.mask.sum())
        values = soft_value(earned(session, fresh, generated).view(len(fresh), samples), beta).tolist()
        remember(session, {key(each): [value, beta] for each, value in zip(fresh, values, strict=True)})
    return torch.tensor([session.of_prompts[key(each)][0] for each in problems], device=session.device)


def tracked_values(session: LlmSession, problems: Sequence[Problem]) -> Tensor:
    """The tracked mean reward of each prompt; of a new one the mean of all earlier rewards. (P,) reward"""
    found = [session.of_prompts.get(key(each)) for each in problems]
    return torch.tensor([session.past_rewards if each is None else each[0] / each[1] for each in found],
                        device=session.device)


def learn(session: LlmSession, problems: Sequence[Problem], totals: Tensor) -> None:
    """Update the tracked value of each prompt by the rewards (B,) of its completions."""
    if choices.ADVANTAGE[session.knobs["advantage"]].of_prompt != tracked_values.__name__:
        return
    moved: dict[str, list[float]] = {}
    for each, group in zip(problems, totals.view(len(problems), -1).double().tolist(), strict=True):
        scored = [one for one in group if one == one]
        known = moved.get(key(each)) or session.of_prompts.get(key(each))
        before = known or [PRIOR * session.past_rewards, PRIOR, float(session.updates)]
        moved[key(each)] = [*tracked(before[0], before[1], scored, session.updates - before[2],
                                     float(session.knobs["tracker_half_life"])), float(session.updates)]
    remember(session, moved)


def remember(session: LlmSession, found: dict[str, list[float]]) -> None:
    """Keep these numbers as the newest; the oldest ones beyond `MOST` are forgotten."""
    kept = {name: numbers for name, numbers in session.of_prompts.items() if name not in found} | found
    session.of_prompts = dict(list(kept.items())[-MOST:])


SOURCES: dict[str, Callable[[LlmSession, Sequence[Problem]], Tensor]] = {
    "optimal_values": optimal_values, "tracked_values": tracked_values}
