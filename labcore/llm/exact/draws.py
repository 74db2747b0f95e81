"""The gradient of a step of the online loop, computed by the loop's own code: for drawn batches, and for all batches.

A step of several updates has several gradients, and between them the run's own optimizer changes the policy. This
module takes their mean; each batch starts with a new optimizer. Gradients are ascent directions, before
`max_grad_norm`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import factorial, prod

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from labcore.catalog import choices
from labcore.errors import LabError
from labcore.llm import preference_objective as objective
from labcore.llm.exact.problem import token_logprobs
from labcore.llm.exact.truth import gradient
from labcore.llm.exact.world import World
from labcore.llm.experience import Batch, collect, mixture_of, rollout_of, sampled_batch
from labcore.llm.loops import online, preference
from labcore.llm.nets.critic import Network
from labcore.llm.nets.forward import completion_outputs
from labcore.llm.networks import REFERENCE
from labcore.llm.pairs import Pairs, next_pairs, sample_once
from labcore.llm.preference_objective import Sides
from labcore.llm.rendering import encode_answers
from labcore.llm.rollout import Rollout, credit
from labcore.llm.session import LlmSession
from labcore.maths.logprobs import log_square_sum, selective_log_softmax
from labcore.maths.preferences import likelihood, reference_point

MOST_BATCHES = 20_000  # that are enumerated


def estimate(session: LlmSession, rollout: Rollout) -> Tensor:
    """The direction in which the updates of a step on `rollout` push the policy: their mean −∇L. (D,) float64

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


def drawn(session: LlmSession, count: int, older: Mapping[str, Tensor] | None = None) -> Iterator[Batch]:
    """`count` batches of the frozen policy, collected as the run collects them; written by the policy with the weights
    `older`, where there are some."""
    own = {name: weight.clone() for name, weight in session.policy.state_dict().items()} if older else {}
    for number in range(count):
        session.step = number  # other prompts
        if older is None:
            yield collect(session)
            continue
        session.policy.load_state_dict(older)
        rounds, batch = sampled_batch(session)
        session.policy.load_state_dict(own)
        age = torch.ones_like(batch.completions.truncated, dtype=torch.long)
        yield Batch(batch, rollout_of(session, batch, age), rounds)


def every(session: LlmSession, world: World) -> Iterator[tuple[float, Rollout]]:
    """Every batch that the session can sample, with its probability: a mean over them has no noise.

    If batches without a signal are sampled again, up to `resample_rounds` times, the probability is that of the batch
    which is kept in the end. Raises LabError if there are too many batches, or several prompts.
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
    rivals = _rivals(session, world)
    for weight, batch in found:
        weight *= again if batch.batch.kept_groups.any() else 1
        for share, reward in rivals:
            yield weight * share, batch.rollout if reward is None else replace(
                batch.rollout, rival_rewards=torch.full_like(batch.rollout.shaped, reward))


@torch.no_grad()
def _rivals(session: LlmSession, world: World) -> list[tuple[float, float | None]]:
    """(probability, reward) of each opponent that the mixture can sample; (1, None) for algorithms without opponents.

    Here all completions have the same opponent, although in a run each has its own. The mean gradient is the same,
    since advantages that are not normalised are sums over opponents, but the variance is larger.
    """
    if "mixture" not in choices.ADVANTAGE[session.knobs["advantage"]].rollouts:
        return [(1.0, None)]
    likely = token_logprobs(mixture_of(session), world.prompts, world.space, session.knobs["temperature"]).sum(-1).exp()
    return [*zip(likely[0].tolist(), world.rewards[0].tolist(), strict=True)]


def _tuples(session: LlmSession, count: int, rows: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """The possible batches, each as the indices of its completions with the number of its orders: a batch whose order
    does not matter is listed once."""
    knobs = session.knobs
    grouped = int(knobs["prompts_per_step"]) > 1 and int(knobs["group_size"]) > 1
    if grouped or choices.SELECTION[knobs["selection"]].group or int(knobs.get("mini_batches", 1)) > 1:
        yield from ((answers, 1) for answers in itertools.product(range(count), repeat=rows))
        return
    for answers in itertools.combinations_with_replacement(range(count), rows):
        yield answers, factorial(rows) // prod(factorial(answers.count(each)) for each in set(answers))


def _tries(session: LlmSession, found: list[tuple[float, Batch]]) -> float:
    """The factor on the probability of a batch with signal if batches without signal are sampled again."""
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


# ---------------------------------------------------------------- pair draws
# The gradient of a preference loss: over batches of pairs by the loop's own code, and over all pairs that there are.
#
# Two completions of a prompt make a pair where they are drawn from π_ref (or at every step from the policy) and
# labelled by the reward. The truth here is not ∇J but the gradient of the row's own loss over all such pairs: a
# preference loss does not estimate ∇J. A loss of a whole batch (its mean length, its sorted margins, its KL) is taken
# in the limit of a large batch: its gradient on a small one is biased against that.

PairOf = tuple[float, int, int, int, str]  # probability, prompt, chosen, rejected, and the reference's side if any
MOST_PAIRS = 1_000_000
LARGE = 20_000  # pairs of the batch that stands for a large one


def drawn_pairs(session: LlmSession, count: int) -> Iterator[Pairs]:
    """`count` batches of pairs from the session's own source, fresh ones where the run makes its pairs only once."""
    wanted = int(session.knobs["pairs_per_step"])
    once = choices.PAIRS[session.knobs["pairs"]].once
    session.pairs = []
    for _ in range(count):
        while once and len(session.pairs) < wanted:
            session.pairs += sample_once(session)
        if not once:
            yield next_pairs(session)
            continue
        yield Pairs(session.pairs[:wanted])
        session.pairs = session.pairs[wanted:]


def estimate_of_pairs(session: LlmSession, pairs: Pairs) -> Tensor:
    """−∇L of the loop on a batch of pairs. (D,) float64; nothing is changed."""
    preference.gradients(session, pairs)
    found = -parameters_to_vector([torch.zeros_like(p) if p.grad is None else p.grad
                                   for p in session.policy.parameters() if p.requires_grad]).double()
    session.policy.zero_grad(set_to_none=True)
    return found


def population(session: LlmSession, world: World, least: float = 0.0) -> list[PairOf]:
    """Every pair with its probability: (p, prompt, chosen, rejected, the reference's side), p > `least`. They sum to 1.

    Of two completions drawn from the run's source: the task's own, or the reference or the policy at the run's
    temperature. Pairs of the reference need two rewards that differ and two texts that are not empty; in pairs of the
    policy's own samples the first side is chosen if the rewards are equal. Raises LabError if there are too many pairs,
    or the group is not one of two.
    """
    source, count = choices.PAIRS[session.knobs["pairs"]], len(world.space)
    if len(world) * count**2 > MOST_PAIRS:
        raise LabError(f"{count:,} completions make {len(world) * count**2:,} pairs, and at most {MOST_PAIRS:,} can be "
                       "enumerated: take a smaller problem.")
    gain = world.rewards[:, :, None] - world.rewards[:, None, :]
    if source.from_file:  # tokens that are all as likely, and Bradley and Terry's label
        likely = (len(session.tokenizer) ** -world.space.lengths.double()).expand(len(world), -1)
        weight = gain.sigmoid()
    elif source.opposed:
        return _opposed(session, world, gain, least)
    elif int(session.knobs["group_size"]) != 2:
        raise LabError("Pairs of the best and the worst of a group are enumerated for groups of two: set "
                       "`group_size=2`.")
    else:
        writes = session.models.get(REFERENCE, session.policy) if source.once else session.policy
        with torch.no_grad():
            likely = token_logprobs(writes, world.prompts, world.space, session.knobs["temperature"]).sum(-1).exp()
        written = torch.tensor([bool(text) for text in world.texts])
        weight = ((gain > 0) & written[:, None] & written).double() if source.once else (gain > 0) + (gain == 0) / 2
    weight = weight * likely[:, :, None] * likely[:, None, :]
    if not weight.sum():
        raise LabError("No two completions have different rewards, so there are no pairs: choose another reward.")
    weight = weight / weight.sum()
    return [(float(weight[q, i, j]), q, i, j, "") for q, i, j in (weight > least).nonzero().tolist()]


@torch.no_grad()
def _opposed(session: LlmSession, world: World, gain: Tensor, least: float) -> list[PairOf]:
    """Every pair of a completion of the policy and one of the reference, with its probability; ties are random."""
    ours, theirs = (token_logprobs(model, world.prompts, world.space, session.knobs["temperature"]).sum(-1).exp()
                    for model in (session.policy, session.reference))
    weight = ((gain > 0) + (gain == 0) / 2) / len(world)
    won = weight * ours[:, :, None] * theirs[:, None, :]
    lost = weight * theirs[:, :, None] * ours[:, None, :]
    return [(float(weight[q, i, j]), q, i, j, side) for weight, side in ((won, "rejected"), (lost, "chosen"))
            for q, i, j in (weight > least).nonzero().tolist()]


def pair_gradient(session: LlmSession, world: World) -> Tensor:
    """−∇ of the session's loss over all pairs, at temperature 1 as the loop has it. (D,) float64"""
    knobs, found = session.knobs, population(session, world)
    whole = objective.asks(knobs, "whole_batch")
    if whole:
        found = _many(found)
    prompts, *pairs = torch.tensor([row[1:4] for row in found]).T
    sides, whose = torch.stack(pairs, 1).flatten(), prompts.repeat_interleave(2)
    sums = _summed(session, session.policy, world, whose, sides)
    leaf = sums.detach().requires_grad_()
    seen = Sides(leaf, world.space.lengths[sides], torch.tensor([True, False]).repeat(len(found)),
                 _summed(session, session.reference, world, whose, sides).detach()
                 if REFERENCE in session.models else None, _likelihoods(session, world, whose, sides),
                 torch.tensor([row[4] == side for row in found for side in ("chosen", "rejected")])
                 if objective.asks(knobs, "opposed") else None)
    kl = _reference_point(session, world, whose, sides)
    # The loss of all pairs together; where it is a sum over pairs, each one's part is weighed afterwards.
    slope = torch.autograd.grad(objective.loss(knobs, seen, len(found) if whole else 1, kl) + 0 * leaf.sum(), leaf)[0]
    if not whole:
        slope = slope * torch.tensor([row[0] for row in found]).double().repeat_interleave(2)
    total = (slope * sums).sum()
    if objective.asks(knobs, "own_answer"):
        total = total + _of_answers(session, world, found)
    return -gradient(total, session.policy.parameters())


def _of_answers(session: LlmSession, world: World, found: list[PairOf]) -> Tensor:
    """The loss of the prompts' own answers, each as likely as the pairs of its prompt. ()"""
    texts = [problem.answer for problem in world.problems]
    prompts, answers = encode_answers(session.rendering, world.problems, texts, session.context, session.device)
    logits = completion_outputs(session.policy, prompts, answers.ids).double()
    sums = (selective_log_softmax(logits, answers.ids) * answers.mask).sum(1)
    likely = sums.new_zeros(len(world)).index_add(0, torch.tensor([row[1] for row in found]),
                                                  torch.tensor([row[0] for row in found]).double())
    return objective.answer_loss(session.knobs, likely * sums, float(likely @ answers.lengths.double()), 1)


def _summed(session: LlmSession, model: Network, world: World, whose: Tensor, sides: Tensor) -> Tensor:
    """The log-probs of the completions `sides` of the prompts `whose`, as the loss sums them. (2, B)"""
    tokens = token_logprobs(model, world.prompts, world.space)[whose, sides]
    return objective.summed(session.knobs, tokens, world.space.completions.mask[sides], paired=True)


@torch.no_grad()
def _likelihoods(session: LlmSession, world: World, whose: Tensor, sides: Tensor) -> Tensor | None:
    """WPO's weights of the completions, where the run has them. (B,)"""
    if not session.knobs["pair_weighting"]:
        return None
    space = world.space
    logits = completion_outputs(session.policy, world.prompts, space.carriers.repeat(len(world), 1)).double()
    squares = log_square_sum(logits).view(len(world), *space.carriers.shape)
    squares = squares[:, space.carrier, torch.arange(squares.shape[2])]
    tokens = token_logprobs(session.policy, world.prompts, space)
    return likelihood(tokens[whose, sides], squares[whose, sides], space.completions.mask[sides])


def _many(found: list[PairOf]) -> list[PairOf]:
    """A large batch in which every pair stands as often as it is likely, to the nearest whole number."""
    ends = torch.tensor([row[0] for row in found]).double().cumsum(0)
    places = torch.searchsorted(ends, (torch.arange(LARGE).double() + 0.5) / LARGE).clamp(max=len(found) - 1)
    return [(1 / LARGE, *found[place][1:]) for place in places.tolist()]


def _reference_point(session: LlmSession, world: World, whose: Tensor, sides: Tensor) -> Tensor | None:
    """KTO's z for a large batch: any prompt with the completions of any pair. ()"""
    if not objective.asks(session.knobs, "mismatched"):
        return None
    with torch.no_grad():
        policy, reference = (token_logprobs(model, world.prompts, world.space).sum(-1)
                             for model in (session.policy, session.reference))
    asked = torch.bincount(whose, minlength=len(world)).double() / len(whose)
    return reference_point((asked @ (policy - reference))[sides])
