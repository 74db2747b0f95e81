"""The preference loop: learn from pairs of a chosen and a rejected completion, wherever they come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from labcore.catalog import choices
from labcore.llm import preference_objective as objective
from labcore.llm.batch import Completions, Prompts
from labcore.llm.evaluation import Evaluation, evaluate
from labcore.llm.generation import chosen
from labcore.llm.loops.stages import Ready, Stage, Taught
from labcore.llm.moving_reference import follow_policy
from labcore.llm.nets.alike import alike
from labcore.llm.nets.critic import Network
from labcore.llm.nets.forward import at_tokens, precision
from labcore.llm.nets.micro_batches import attempts, micro_batches, retried
from labcore.llm.networks import POLICY, REFERENCE
from labcore.llm.own_answers import OwnAnswers, learn_answers
from labcore.llm.pairs import Pairs, next_pairs, prepare
from labcore.llm.preference_objective import Sides
from labcore.llm.probes import view
from labcore.llm.probes.token_records import Met, given
from labcore.llm.rendering import Ids, encode_answers
from labcore.llm.session import LlmSession
from labcore.maths.logprobs import log_square_sum, logprobs_and_entropy
from labcore.maths.preferences import likelihood, reference_point
from labcore.maths.turns import extents
from labcore.runs.spec.activity import part_of
from labcore.runs.spec.session import Record
from labcore.tasks.task import Pair, Single

SHOWN = 16  # pairs in the sample view


def run(session: LlmSession) -> Iterator[Stage]:
    """Yield a Record per update, and the stages before it. Where the pairs are not the policy's own samples of this
    step, it is measured by sampling every so many steps; the first record carries the measurement of the base, before
    the update.
    """
    prepare(session)
    while session.step < session.spec.steps:
        evaluation = evaluate(session) if session.step == 0 and "eval_every" in session.knobs else None
        found, met = next_pairs(session), Met()
        measured = (session.step + 1) % int(session.knobs.get("eval_every", session.step + 2)) == 0
        yield Ready(evaluation is not None or measured or view.samples_due(session.step + 1))
        for attempt in attempts(session):  # once more in smaller micro-batches where memory is short
            with attempt:
                taken = gradients(session, found, met)
        metrics = step(session, found, taken)
        follow_policy(session)
        session.step += 1
        if evaluation is None and measured:
            evaluation = evaluate(session)
        metrics |= found.metrics | (evaluation.metrics if evaluation else {})
        metrics |= {"updates": session.updates, "num_tokens": session.tokens}
        yield Taught(partial(_samples, found=found, taken=taken, met=met, evaluation=evaluation))
        yield Record(session.step, session.tokens, metrics)


def _samples(session: LlmSession, found: Pairs, taken: Taken, met: Met,
             evaluation: Evaluation | None) -> dict[str, Any]:
    """The pairs of a step token by token, and the completions that it sampled, if any."""
    seen = (evaluation.problems, evaluation.generated, evaluation.rewards) if evaluation else found.sampled
    groups = view.sampled_groups(session, *seen) if seen else {}
    return shown(session, found, taken, met) | {"step": session.step} | groups


def encode(session: LlmSession, pairs: list[Pair]) -> tuple[Prompts, Completions]:
    """Prompts (N), and completions (2N) with each chosen one directly before its rejected one."""
    sides = [text for pair in pairs for text in (pair.chosen, pair.rejected)]
    cut = [side for pair in pairs for side in (pair.chosen_truncated, pair.rejected_truncated)]
    sampled = [ids for pair in pairs for ids in pair.sampled or (None, None)]
    return _encoded(session, pairs, sides, cut, sampled)


def _encoded(session: LlmSession, rows: Sequence[Pair | Single], texts: list[str], cut: list[bool],
             sampled: Sequence[Ids] = ()) -> tuple[Prompts, Completions]:
    return encode_answers(session.rendering, rows, texts, session.context, session.device, cut, sampled)


def _labelled(session: LlmSession, found: Pairs) -> tuple[Prompts, Completions, Tensor]:
    """The prompts, their completions, and flags bool (3, B) of the completions: chosen or desired; sampled by the
    reference; part of a tie."""
    theirs = [pair.theirs == side for pair in found.pairs for side in ("chosen", "rejected")]
    ties = [pair.tie for pair in found.pairs for _ in range(2)]
    if found.singles:
        texts, labels = [each.completion for each in found.singles], [each.label for each in found.singles]
        prompts, completions = _encoded(session, found.singles, texts, [False] * len(texts))
    else:
        prompts, completions = encode(session, found.pairs)
        labels = [True, False] * len(prompts)
    none = [False] * len(labels)
    return prompts, completions, torch.tensor([labels, theirs or none, ties or none], device=session.device)


def update(session: LlmSession, found: Pairs, met: Met | None = None) -> tuple[dict[str, float], dict[str, Any]]:
    """One update on pairs outside of a run, as `run` makes it. Returns its metrics and the pairs to show."""
    taken = retried(gradients)(session, found, met)
    return step(session, found, taken), shown(session, found, taken, met)


def step(session: LlmSession, found: Pairs, taken: Taken) -> dict[str, float]:
    """One optimizer step on the gradient that the policy holds; the metrics of the update."""
    if found.sampled is None:  # else they were counted when they were sampled
        session.tokens += taken.tokens
    metrics = {"loss": taken.loss, **session.update(POLICY, taken.loss), "entropy": taken.entropy}
    metrics |= {} if taken.mismatched_kl is None else {"kl/mismatched": taken.mismatched_kl}
    if (theirs := taken.sides.theirs) is not None:
        metrics["logps/opponent"] = float(taken.sides.logprobs[theirs].mean())
    metrics |= {} if taken.answers is None else {"logps/answer": taken.answers.mean_logprob}
    return metrics | (_single_metrics if found.singles else _pair_metrics)(taken.sides, session.knobs["beta"])


def shown(session: LlmSession, found: Pairs, taken: Taken, met: Met | None) -> dict[str, Any]:
    """The pairs of an update for the sample view, with their tokens where it has `met`; single completions have none.
    """
    beta = session.knobs["beta"]
    if found.singles:
        return {"pairs": [], "beta": beta}
    pairs = _shown(found.pairs, taken.sides, beta)
    for pair, text, logprob in zip(pairs["pairs"], *(taken.answers.shown if taken.answers else ((), ())), strict=False):
        pair["own_answer"] = {"text": text, "logprob": logprob}
    for pair, asked in zip(pairs["pairs"], found.pairs if met else (), strict=False):
        pair |= session.rendering.shown(asked)
    for row, side in enumerate(given(met, session, taken.completions, 2 * len(pairs["pairs"])) if met else ()):
        pairs["pairs"][row // 2][("chosen", "rejected")[row % 2]] |= side
    return pairs


@dataclass(frozen=True)
class Taken:
    """The measurements of `gradients`: the completions and their sides, detached; `entropy` in nats/token; the tasks'
    own answers, if a loss trains on them."""

    loss: float
    completions: Completions
    sides: Sides
    entropy: float
    mismatched_kl: float | None
    answers: OwnAnswers | None = None

    @property
    def tokens(self) -> int:
        return int(self.completions.mask.sum()) + (self.answers.tokens if self.answers else 0)


@part_of("update")
def gradients(session: LlmSession, found: Pairs, met: Met | None = None) -> Taken:
    """Leave the gradient of the loss on pairs in the policy, before any step.

    Chosen and rejected share their prompt's prefix. ℓ is summed over the completion, at temperature 1. The batch may be
    cut into micro-batches for memory; the gradient does not depend on the cut.
    """
    knobs = session.knobs
    if met:
        met.clear()
    prompts, completions, labels = _labelled(session, found)
    parts = list(micro_batches(session.policy, prompts, completions.ids, session.room))
    same = REFERENCE in session.models and alike(session.policy, session.reference)
    kl = _mismatched_kl(session, prompts, completions, same) if objective.asks(knobs, "mismatched") else None
    whole = None
    if len(parts) > 1 and objective.asks(knobs, "whole_batch"):  # the rest stands still under a part's gradient
        whole = _whole(session, prompts, completions, labels, parts, same)
    loss, seen, entropies = 0.0, [], 0.0
    for some, rows in parts:
        sides, entropy = _sides(session, prompts[some], completions, labels, rows, same, met)
        part = objective.loss(knobs, whole.with_part(rows, sides) if whole else sides, len(prompts), kl)
        if part.requires_grad:  # else no loss is one of pairs
            part.backward()
        loss = part.item() if whole else loss + part.item()
        seen.append(replace(sides, sums=sides.sums.detach()))
        entropies += float(entropy)
    answers = learn_answers(session, found.pairs) if objective.asks(knobs, "own_answer") else None
    return Taken(loss + (answers.loss if answers else 0), completions, Sides.together(seen),
                 entropies / int(completions.mask.sum()), None if kl is None else float(kl), answers)


@retried
def measures(session: LlmSession, found: Pairs) -> dict[str, float]:
    """The metrics that `update` logs, for pairs that are only evaluated."""
    prompts, completions, labels = _labelled(session, found)
    parts = list(micro_batches(session.policy, prompts, completions.ids, session.room))
    same = REFERENCE in session.models and alike(session.policy, session.reference)
    sides = _whole(session, prompts, completions, labels, parts, same)
    return (_single_metrics if found.singles else _pair_metrics)(sides, session.knobs["beta"])


@torch.no_grad()
def _whole(session: LlmSession, prompts: Prompts, completions: Completions, labels: Tensor,
           parts: list[tuple[slice, slice]], same: bool) -> Sides:
    """The sides of a batch, without a gradient."""
    return Sides.together([_sides(session, prompts[some], completions, labels, rows, same)[0] for some, rows in parts])


def _sides(session: LlmSession, prompts: Prompts, completions: Completions, labels: Tensor,
           rows: slice, same: bool, met: Met | None = None) -> tuple[Sides, Tensor]:
    """The log-probs of the completions in `rows` that the loss reads, and the sum of all their token entropies. `met`
    takes them down.

    `same`: the policy is still the reference, whose log-probs are then those of this very pass.
    """
    knobs, ids, mask = session.knobs, completions.ids[rows], completions.mask[rows]
    paired, ref_tokens, ref_sums, likelihoods = len(ids) > len(prompts), None, None, None
    with precision(session.policy, knobs["dtype"]):
        logprobs, entropy, *squares = at_tokens(session.policy, prompts, ids, partial(
            _measure, squares=bool(knobs["pair_weighting"])), met.norms_of(ids) if met else None,
            extents=extents(mask))
    if REFERENCE in session.models:
        ref_tokens = logprobs.detach() if same else _token_logprobs(session, session.reference, prompts, ids, mask)
        ref_sums = objective.summed(knobs, ref_tokens, mask, paired)
    if met:
        met.see(logprobs, entropy, ref_tokens)
    if squares:
        likelihoods = likelihood(logprobs.detach(), squares[0], mask)
    chosen, theirs, ties = labels[:, rows]
    sides = Sides(objective.summed(knobs, logprobs, mask, paired), mask.sum(1), chosen, ref_sums, likelihoods,
                  theirs if objective.asks(knobs, "opposed") else None,
                  ties if any(source.opposed for source in choices.chosen(choices.PAIRS, knobs)) else None)
    return sides, (entropy * mask).sum()


def _measure(logits: Tensor, ids: Tensor, squares: bool) -> tuple[Tensor, ...]:
    """The log-prob of each token, the entropy before it, and with `squares` log Σ_v π_v²."""
    found = logprobs_and_entropy(logits, ids, entropy_grad=False)
    return (*found, log_square_sum(logits.detach())) if squares else found


@torch.no_grad()
def _token_logprobs(session: LlmSession, model: Network, prompts: Prompts, ids: Tensor, mask: Tensor) -> Tensor:
    """log π of each token at temperature 1, valid where the `mask` is True. (B, T), bool (B, T) -> (B, T) nats"""
    with precision(model, session.knobs["dtype"]):
        return at_tokens(model, prompts, ids, chosen, extents=extents(mask))[0]


@torch.no_grad()
def _mismatched_kl(session: LlmSession, prompts: Prompts, completions: Completions, same: bool) -> Tensor:
    """KTO's estimate of the KL: each prompt is paired with the completions of the previous prompt. nats/sequence"""
    if same:
        return torch.zeros((), device=session.device)
    size = len(completions) // len(prompts)
    ids, mask = completions.ids.roll(size, 0), completions.mask.roll(size, 0)
    ratios = []
    for some, rows in micro_batches(session.policy, prompts, ids, session.room):
        policy, reference = (
            (_token_logprobs(session, model, prompts[some], ids[rows], mask[rows]) * mask[rows]).sum(1)
            for model in (session.policy, session.reference))
        ratios.append(policy - reference)
    return reference_point(torch.cat(ratios))


def _pair_metrics(sides: Sides, beta: float) -> dict[str, float]:
    rewards = objective.implicit_rewards(beta, sides).view(-1, 2)
    margins, logprobs = rewards[:, 0] - rewards[:, 1], sides.logprobs.view(-1, 2)
    return {"rewards/chosen": float(rewards[:, 0].mean()), "rewards/rejected": float(rewards[:, 1].mean()),
            "rewards/margins": float(margins.mean()), "rewards/accuracies": float((margins > 0).float().mean()),
            "logps/chosen": float(logprobs[:, 0].mean()), "logps/rejected": float(logprobs[:, 1].mean())}


def _single_metrics(sides: Sides, beta: float) -> dict[str, float]:
    """Metrics of completions without a partner, only for the labels that the batch has."""
    rewards = objective.implicit_rewards(beta, sides)
    found: dict[str, float] = {}
    for side, rows in (("chosen", sides.labels), ("rejected", ~sides.labels)):
        if rows.any():
            found |= {f"rewards/{side}": float(rewards[rows].mean()),
                      f"logps/{side}": float(sides.logprobs[rows].mean())}
    if {"rewards/chosen", "rewards/rejected"} <= found.keys():
        found["rewards/margins"] = found["rewards/chosen"] - found["rewards/rejected"]
    return found


def _shown(pairs: list[Pair], sides: Sides, beta: float) -> dict[str, Any]:
    columns = {"logprob": sides.logprobs} if sides.ref_logprobs is None else {
        "logprob": sides.logprobs, "ref_logprob": sides.ref_logprobs}
    lists = {key: values.view(-1, 2)[:SHOWN].double().cpu().numpy().round(5).tolist()
             for key, values in columns.items()}
    lengths, rows = sides.lengths.view(-1, 2).tolist(), []
    for place, pair in enumerate(pairs[:SHOWN]):
        chosen, rejected = ({"text": text, **{key: values[place][side] for key, values in lists.items()}}
                            for side, text in enumerate((pair.chosen, pair.rejected)))
        gained = [each["logprob"] - each["ref_logprob"] if "ref_logprob" in each else each["logprob"] / length
                  for each, length in zip((chosen, rejected), lengths[place], strict=True)]
        rows.append({"prompt": pair.prompt, "chosen": chosen, "rejected": rejected,
                     "margin": beta * (gained[0] - gained[1]), **({"tie": True} if pair.tie else {})})
    return {"pairs": rows, "beta": beta}
