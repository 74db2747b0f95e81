"""The loss of the preference loop: the choices of the run, on the completions of a batch.

    L(θ) = w₁ mean loss(h(c), h(r)) [ + w₂ · mean of a second loss ] [ + w₃ · mean of a third ]

c and r are the log-ratios of the two sides to the reference; h is the function of the chosen divergence.

LD-DPO (`ld_alpha`) gives the tail of a pair's longer side less weight in losses that compare the two sides. Losses that
raise a completion's likelihood (SFT, and ORPO's SFT term) or judge each completion by itself (KTO) count every token at
full weight. So each sum is kept in both forms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from labcore.catalog.choice import PreferenceLoss
from labcore.catalog.choices import DIVERGENCE, PREFERENCE_LOSS, weighted_losses
from labcore.maths import preferences
from labcore.maths.call import call, member


@dataclass(frozen=True)
class Sides:
    """The quantities of B completions that preference losses use.

    `sums` (2, B) and `ref_sums` (2, B) are log-probs in nats/sequence, of the policy and of the reference. Row 0
    weighs the tails of longer sides as LD-DPO does, row 1 counts every token (see `summed`).

    All others are (B,): `lengths` in tokens; `labels`, True for a completion that is chosen or desired; `likelihoods`
    for the weights of WPO; `theirs`, True for a completion that the reference sampled against one of the policy;
    `ties`, True if neither side of the pair is better. A quantity that the run does not need is None.
    """

    sums: Tensor
    lengths: Tensor
    labels: Tensor
    ref_sums: Tensor | None = None
    likelihoods: Tensor | None = None
    theirs: Tensor | None = None
    ties: Tensor | None = None

    @staticmethod
    def together(parts: list[Sides]) -> Sides:
        """The completions of all parts, one after the other."""
        def joined(columns: list[Tensor | None]) -> Tensor | None:
            found = [column for column in columns if column is not None]
            return torch.cat(found, -1) if found else None

        return Sides(torch.cat([part.sums for part in parts], -1), torch.cat([part.lengths for part in parts]),
                     torch.cat([part.labels for part in parts]), joined([part.ref_sums for part in parts]),
                     joined([part.likelihoods for part in parts]), joined([part.theirs for part in parts]),
                     joined([part.ties for part in parts]))

    def with_part(self, rows: slice, part: Sides) -> Sides:
        """These sides with the log-probs of `part`, and its gradient, in `rows`."""
        sums = torch.cat([self.sums[:, : rows.start], part.sums, self.sums[:, rows.stop:]], -1)
        return replace(self, sums=sums)

    @property
    def logprobs(self) -> Tensor:
        """log π of each completion as it is compared with the other side, nats/sequence. (B,)"""
        return self.sums[0]

    @property
    def ref_logprobs(self) -> Tensor | None:
        """The log-probs of the reference. (B,)"""
        return None if self.ref_sums is None else self.ref_sums[0]

    @property
    def log_ratios(self) -> Tensor:
        """c and r, nats/sequence. (B,) There must be a reference."""
        return self.every_log_ratio[0]

    @property
    def every_log_ratio(self) -> Tensor:
        """c and r in both forms, nats/sequence. (2, B) There must be a reference."""
        assert self.ref_sums is not None
        return self.sums - self.ref_sums


def choices_of(knobs: Mapping[str, Any]) -> list[tuple[PreferenceLoss, float]]:
    """The losses of a run and their weights."""
    return [(PREFERENCE_LOSS[name], weight) for name, weight in weighted_losses(knobs)]


def asks(knobs: Mapping[str, Any], field: str) -> bool:
    """True if a loss of the run has this field of a choice set."""
    return any(getattr(choice, field) for choice, _ in choices_of(knobs))


def summed(knobs: Mapping[str, Any], logprobs: Tensor, mask: Tensor, paired: bool) -> Tensor:
    """The log-prob of each completion, nats/sequence: row 0 with tails weighed by LD-DPO, row 1 of every token.
    (B, T), (B, T) -> (2, B)

    If `paired`, the two sides of a pair are neighbours. The rows are equal if no loss compares the sides of a pair.
    """
    whole = (logprobs * mask).sum(1)
    if not paired or knobs["ld_alpha"] == 1 or all(choice.every_token for choice, _ in choices_of(knobs)):
        return torch.stack([whole, whole])
    other = mask.sum(1).view(-1, 2).flip(1).flatten()
    return torch.stack([preferences.without_tail(logprobs, mask, other, float(knobs["ld_alpha"])), whole])


def loss(knobs: Mapping[str, Any], sides: Sides, pairs: int, mismatched_kl: Tensor | None = None) -> Tensor:
    """The loss of one part of a batch of `pairs` pairs; the batch's loss is the sum over its parts.

    If the loss depends on the whole batch, `sides` must be the whole batch, and the result is the batch's loss.
    """
    given = _quantities(knobs, sides) | {"mismatched_kl": mismatched_kl}
    total = sides.sums.new_zeros(())
    for choice, weight in choices_of(knobs):
        if choice.own_answer:  # no loss of the pair: see `answer_loss`
            continue
        each = call(member(PREFERENCE_LOSS, choice.key), knobs, given)
        if sides.ties is not None and choice.pairwise:  # the expectation over a coin that breaks the tie
            other = call(member(PREFERENCE_LOSS, choice.key), knobs, _other_way_round(given))
            each = torch.where(sides.ties[sides.labels], (each + other) / 2, each)
        if sides.likelihoods is not None:
            each = each * sides.likelihoods[sides.labels] * sides.likelihoods[~sides.labels]
        total = total + weight * (each.sum() / (len(each) if choice.whole_batch else pairs))
    return total


def _other_way_round(given: Mapping[str, Any]) -> dict[str, Any]:
    """The quantities of the same pairs with the two sides exchanged."""
    other = {"chosen": "rejected", "rejected": "chosen"}
    names = {name: name.rpartition("_") for name in given}
    return {f"{stem}_{other[side]}" if side in other else name: given[name] for name, (stem, _, side) in names.items()}


def answer_loss(knobs: Mapping[str, Any], logprobs: Tensor, mean_length: float, pairs: int) -> Tensor:
    """The part that the tasks' own answers have in the loss of a batch of `pairs` pairs. (B,) nats/sequence -> ()

    `mean_length` is that of all the batch's answers, so that a batch may be cut into parts.
    """
    given = {"logprob_answer": logprobs, "mean_length_answer": logprobs.new_tensor(mean_length)}
    return torch.stack([weight * call(member(PREFERENCE_LOSS, choice.key), knobs, given).sum() / pairs
                        for choice, weight in choices_of(knobs) if choice.own_answer]).sum()


def _quantities(knobs: Mapping[str, Any], sides: Sides) -> dict[str, Tensor]:
    found = {"logprob": sides.sums[0], "whole_logprob": sides.sums[1], "length": sides.lengths}
    if sides.theirs is not None:
        found["theirs"] = sides.theirs.to(sides.sums)
    if sides.ref_sums is not None:
        compared = call(member(DIVERGENCE, knobs["divergence"]), knobs, {"log_ratios": sides.every_log_ratio})
        found |= {"ref_logprob": sides.ref_sums[0], "log_ratio": compared[0], "whole_log_ratio": compared[1]}
    return {f"{name}_{side}": values[rows] for name, values in found.items()
            for side, rows in (("chosen", sides.labels), ("rejected", ~sides.labels))}


def implicit_rewards(beta: float, sides: Sides) -> Tensor:
    """β log π/π_ref of each completion; without a reference β times its mean log-prob per token. (B,)

    In nats × β.
    """
    return beta * (sides.logprobs / sides.lengths if sides.ref_logprobs is None else sides.log_ratios)
