"""The loss of the preference loop: the choices of the run, on the completions of a batch.

    L(θ) = mean loss(h(c), h(r)) [ + w · mean of a second loss ]

c and r are log-ratios to the reference, h is what the divergence makes of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from labcore.catalog.choice import Choice
from labcore.catalog.choices import DIVERGENCE, PREFERENCE_LOSS, losses_of
from labcore.maths import preference_weights
from labcore.maths.call import call, member


@dataclass(frozen=True)
class Sides:
    """Completions as a preference loss sees them, (B,) each.

    `logprobs` and those of the reference, where there is one, are summed, nats/sequence; `lengths` are tokens; `labels`
    are True where a completion is chosen or desired; `likelihoods` are WPO's, where it weighs the pairs.
    """

    logprobs: Tensor
    lengths: Tensor
    labels: Tensor
    ref_logprobs: Tensor | None = None
    likelihoods: Tensor | None = None

    @staticmethod
    def together(parts: list[Sides]) -> Sides:
        """The completions of all parts, one after the other."""
        def joined(columns: list[Tensor | None]) -> Tensor | None:
            found = [column for column in columns if column is not None]
            return torch.cat(found) if found else None

        return Sides(torch.cat([part.logprobs for part in parts]), torch.cat([part.lengths for part in parts]),
                     torch.cat([part.labels for part in parts]), joined([part.ref_logprobs for part in parts]),
                     joined([part.likelihoods for part in parts]))

    def with_part(self, rows: slice, part: Sides) -> Sides:
        """The same with the log-probs of `part`, and its gradient, in `rows`."""
        logprobs = torch.cat([self.logprobs[: rows.start], part.logprobs, self.logprobs[rows.stop:]])
        return Sides(logprobs, self.lengths, self.labels, self.ref_logprobs, self.likelihoods)

    @property
    def log_ratios(self) -> Tensor:
        """c and r, nats/sequence. There must be a reference."""
        assert self.ref_logprobs is not None
        return self.logprobs - self.ref_logprobs


def choices_of(knobs: Mapping[str, Any]) -> list[tuple[Choice, float]]:
    """The losses of a run and their weights."""
    weights = (1.0, float(knobs["second_weight"]))
    return [(PREFERENCE_LOSS[name], weight) for name, weight in zip(losses_of(knobs), weights, strict=False)]


def asks(knobs: Mapping[str, Any], field: str) -> bool:
    """Whether a loss of the run has this field of a choice set."""
    return any(getattr(choice, field) for choice, _ in choices_of(knobs))


def summed(knobs: Mapping[str, Any], logprobs: Tensor, mask: Tensor, paired: bool) -> Tensor:
    """The log-prob of each completion, nats/sequence, with what LD-DPO leaves of tails. (B, T), (B, T) -> (B,)

    Where they are `paired`, the two of a pair stand next to each other.
    """
    if not paired or knobs["ld_alpha"] == 1:
        return (logprobs * mask).sum(1)
    other = mask.sum(1).view(-1, 2).flip(1).flatten()
    return preference_weights.without_tail(logprobs, mask, other, float(knobs["ld_alpha"]))


def loss(knobs: Mapping[str, Any], sides: Sides, pairs: int, mismatched_kl: Tensor | None = None) -> Tensor:
    """The loss of a part of a batch of `pairs` pairs, to be added to those of the other parts.

    Of a loss that depends on the whole batch `sides` has to be all of it, and the loss is the batch's.
    """
    given = _quantities(knobs, sides) | {"mismatched_kl": mismatched_kl}
    total = sides.logprobs.new_zeros(())
    for choice, weight in choices_of(knobs):
        each = call(member(PREFERENCE_LOSS, choice.key), knobs, given)
        if sides.likelihoods is not None:
            each = each * sides.likelihoods[sides.labels] * sides.likelihoods[~sides.labels]
        total = total + weight * (each.sum() / (len(each) if choice.whole_batch else pairs))
    return total


def _quantities(knobs: Mapping[str, Any], sides: Sides) -> dict[str, Tensor]:
    found = {"logprob": sides.logprobs, "length": sides.lengths}
    if sides.ref_logprobs is not None:
        compared = call(member(DIVERGENCE, knobs["divergence"]), knobs, {"log_ratios": sides.log_ratios})
        found |= {"ref_logprob": sides.ref_logprobs, "log_ratio": compared}
    return {f"{name}_{side}": values[rows] for name, values in found.items()
            for side, rows in (("chosen", sides.labels), ("rejected", ~sides.labels))}


def implicit_rewards(beta: float, sides: Sides) -> Tensor:
    """β log π/π_ref of each completion; without a reference β times its mean log-prob per token. (B,)

    In nats × β.
    """
    return beta * (sides.logprobs / sides.lengths if sides.ref_logprobs is None else sides.log_ratios)
