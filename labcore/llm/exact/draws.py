"""The gradient that a step of the online loop makes of a batch, by the loop's own code: of batches, and of all batches.

A step of several updates has several gradients: the policy moves between them, by the run's own optimizer, which begins
anew with each batch. What counts here is their mean. Gradients are those before `max_grad_norm`, and point upwards.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from math import factorial, prod

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from labcore.catalog import choices
from labcore.errors import LabError
from labcore.llm.exact.world import World
from labcore.llm.experience import Batch, collect
from labcore.llm.loops import online
from labcore.llm.rollout import Rollout, credit
from labcore.llm.session import LlmSession

MOST_BATCHES = 20_000  # that are enumerated


def estimate(session: LlmSession, rollout: Rollout) -> Tensor:
    """Which way the updates of a step on `rollout` push the policy: their mean −∇L. (D,) float64

    Nothing is changed.
    """
    parts = list(online.parts_of(session, len(rollout.prompts)))
    before = [parameter.detach().clone() for model in session.models.values() for parameter in model.parameters()]
    found, moves = [], session.moves
    for place, part in enumerate(parts):
        measured = online.gradients(session, credit(session.in_force, rollout).select(part),
                                    fresh=session.moves == moves)
        found.append(-parameters_to_vector([torch.zeros_like(p) if p.grad is None else p.grad
                                            for p in session.policy.parameters() if p.requires_grad]).double())
        if place + 1 < len(parts):
            online.step(session, measured)
    for model in session.models.values():
        model.zero_grad(set_to_none=True)
    if len(parts) > 1:
        _restore(session, before)
    return torch.stack(found).mean(0)


@torch.no_grad()
def _restore(session: LlmSession, before: list[Tensor]) -> None:
    parameters = [parameter for model in session.models.values() for parameter in model.parameters()]
    for parameter, old in zip(parameters, before, strict=True):
        parameter.copy_(old)
    for optimizer in session.optimizers.values():
        optimizer.state.clear()


def drawn(session: LlmSession, count: int) -> Iterator[Batch]:
    """`count` batches of the frozen policy, collected as the run collects them."""
    for number in range(count):
        session.step = number  # other prompts
        yield collect(session)


def every(session: LlmSession, world: World) -> Iterator[tuple[float, Rollout]]:
    """Every batch that the session can sample, with its probability: a mean over them has no noise.

    Groups that are sampled again where they have no signal count with the probability that they are what is found.

    Raises:
        LabError: there are too many, or several prompts.
    """
    prompts, size, count = int(session.knobs["prompts_per_step"]), int(session.knobs["group_size"]), len(world.space)
    total = count ** (prompts * size)
    if len(world) > 1 or total > MOST_BATCHES:
        raise LabError(f"{prompts} × {size} completions of {len(world)} prompts make {float(total):,.0f} batches, and "
                       f"at most {MOST_BATCHES:,} of one prompt can be enumerated: take a smaller problem or group.")
    likely, found = world.probabilities[0], []
    for answers, ways in _tuples(session, count, prompts * size):
        groups = [answers[start:start + size] for start in range(0, len(answers), size)]
        found.append((ways * float(likely[list(answers)].prod()), world.batch(session, [0] * prompts, groups)))
    again = _tries(session, found)
    for weight, batch in found:
        yield weight * (again if batch.batch.kept_groups.any() else 1), batch.rollout


def _tuples(session: LlmSession, count: int, rows: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """The completions of every batch, and in how many orders it comes: where the order says nothing, it comes once."""
    knobs = session.knobs
    grouped = int(knobs["prompts_per_step"]) > 1 and int(knobs["group_size"]) > 1
    if grouped or choices.SELECTION[knobs["selection"]].group or int(knobs.get("mini_batches", 1)) > 1:
        yield from ((answers, 1) for answers in itertools.product(range(count), repeat=rows))
        return
    for answers in itertools.combinations_with_replacement(range(count), rows):
        yield answers, factorial(rows) // prod(factorial(answers.count(each)) for each in set(answers))


def _tries(session: LlmSession, found: list[tuple[float, Batch]]) -> float:
    """How much likelier a batch with signal is where one without it is sampled again."""
    if not choices.SELECTION[session.knobs["selection"]].refills:
        return 1.0
    empty = sum(weight for weight, batch in found if not batch.batch.kept_groups.any())
    return sum(empty**tries for tries in range(int(session.knobs["resample_rounds"]) + 1))


def expectation(session: LlmSession, world: World, values: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The mean and the variance (its trace) of the session's estimate over every batch. (D,), ()

    `values` (Q, N, T) are a critic's in place of the session's own.
    """
    draws, weights = [], []
    for weight, rollout in every(session, world):
        draws.append(estimate(session, valued(world, rollout, values)))
        weights.append(weight)
    found, likely = torch.stack(draws), torch.tensor(weights).double()
    mean = likely @ found
    return mean, likely @ (found**2).sum(1) - mean @ mean


def valued(world: World, rollout: Rollout, values: Tensor | None) -> Rollout:
    """The rollout with the `values` (Q, N, T) of its completions in place of the critic's own; without any as it is."""
    if values is None or rollout.old_values is None:
        return rollout
    width = rollout.ids.shape[1]
    prompts = world.prompts.ids[:, -rollout.prompts.ids.shape[1]:]
    whose = {tuple(row.tolist()): place for place, row in enumerate(prompts)}
    asked = torch.tensor([whose[tuple(row.tolist())] for row in rollout.prompts.ids])
    rows = asked.repeat_interleave(rollout.group_size), world.places(rollout.ids, rollout.completion_mask)
    given = values[rows][:, :width].to(rollout.old_values.dtype)
    return replace(rollout, old_values=given * rollout.completion_mask)
