"""Record the updates of a step token by token: the trainer's log-probs, and the gradient of the loss at each token's
logits.

Both are by-products of the passes that an update makes anyway; nothing is computed a second time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from labcore.llm.batch import Completions
from labcore.llm.rollout import Rollout
from labcore.llm.session import LlmSession
from labcore.llm.token_texts import token_texts
from labcore.maths.masked import masked_mean
from labcore.maths.weights import effective_share


@dataclass
class Met:
    """One update: `norms_of` and `see` are called for each part of its batch, in turn, before the backward pass of it.

    `logprobs` and `entropy` are (b, T) each, nats, before the update; `norms` are ‖∂L/∂z‖₂ of each token's logits z, in
    the unit of the loss per logit. They are of the whole loss, as autograd has it.
    """

    _logprobs: list[Tensor] = field(default_factory=list)
    _entropy: list[Tensor] = field(default_factory=list)
    _norms: list[Tensor] = field(default_factory=list)
    _references: list[Tensor] = field(default_factory=list)
    _agreements: list[Tensor] = field(default_factory=list)
    _singled_out: list[Tensor] = field(default_factory=list)

    def clear(self) -> None:
        """Forget all parts: the batch is run again."""
        for column in vars(self).values():
            column.clear()

    def norms_of(self, ids: Tensor) -> Tensor:
        """Where the norms of a part are to be written, which has the tokens `ids` (b, T)."""
        self._norms.append(torch.zeros_like(ids, dtype=torch.float32))
        return self._norms[-1]

    def see(self, logprobs: Tensor, entropy: Tensor, ref_logprobs: Tensor | None = None,
            singled_out: Tensor | None = None) -> None:
        """Record a part."""
        self._references += [] if ref_logprobs is None else [ref_logprobs]
        self._singled_out += [] if singled_out is None else [singled_out]
        self._logprobs.append(logprobs.detach())
        self._entropy.append(entropy.detach())

    def agree(self, *same: Tensor) -> None:
        """Record at which tokens of a part policy and teacher have the same likeliest token, bool (b, T). Without a
        teacher there is no argument."""
        self._agreements += same

    def of_teacher(self, mask: Tensor) -> dict[str, float]:
        """The share of the tokens of `mask` (B, T) where policy and teacher have the same likeliest token."""
        if not self._agreements or not mask.any():
            return {}
        return {"teacher/agreement": float(masked_mean(torch.cat(self._agreements).float(), mask))}

    @property
    def logprobs(self) -> Tensor:
        return torch.cat(self._logprobs)

    @property
    def entropy(self) -> Tensor:
        return torch.cat(self._entropy)

    @property
    def ref_logprobs(self) -> Tensor | None:
        """The reference's log-probs, where there is one. (b, T) nats"""
        return torch.cat(self._references) if self._references else None

    @property
    def singled_out(self) -> Tensor | None:
        """The tokens that the surrogate treated in another way, where it has such. (b, T) bool"""
        return torch.cat(self._singled_out) if self._singled_out else None

    @property
    def norms(self) -> Tensor:
        return torch.cat(self._norms)

    @property
    def shares(self) -> Tensor:
        """Each token's part in the sum of all norms of the update; 0 where there is no gradient at all. (b, T)"""
        norms = self.norms
        total = norms.sum()
        return norms / total if total > 0 else norms


def given(met: Met, session: LlmSession, completions: Completions, rows: int) -> list[dict[str, Any]]:
    """The numbers of an update at each token of the first `rows` texts that it was given, as lists."""
    columns = {"logprobs": (met.logprobs, 5), "entropy": (met.entropy, 5), "share": (met.shares, 7)}
    columns |= {} if met.ref_logprobs is None else {"ref_logprobs": (met.ref_logprobs, 5)}
    lists = {name: values[:rows].double().cpu().numpy().round(digits).tolist()
             for name, (values, digits) in columns.items()}
    lengths, ids = completions.extents[:rows].tolist(), completions.ids[:rows].tolist()
    return [{"tokens": token_texts(session.tokenizer, ids[row][:length]),
             **{name: values[row][:length] for name, values in lists.items()}} for row, length in enumerate(lengths)]


class StepTokens:
    """The batch of a step as its updates met it, all (B, T).

    `gap` is log π of the trainer less log π of the sampler, nats, NaN in rows that the first update left out: the later
    ones meet another policy. `logprobs`, `entropy`, `shares` and `singled_out` (1 or 0) are of the last update that a
    row was in.
    """

    def __init__(self, rollout: Rollout) -> None:
        self._rollout = rollout
        self.gap: Tensor | None = None
        self.logprobs: Tensor | None = None
        self.entropy: Tensor | None = None
        self.shares: Tensor | None = None
        self.singled_out: Tensor | None = None

    def take(self, prompts: Tensor, met: Met) -> None:
        """Store the token values of an update on some of the prompts. prompts: (N,) indices."""
        size = self._rollout.group_size
        rows = (prompts[:, None] * size + torch.arange(size, device=prompts.device)).flatten()
        if self.gap is None:
            self.gap = self._placed(None, rows, met.logprobs - self._sampler[rows])
        self.logprobs = self._placed(self.logprobs, rows, met.logprobs)
        self.entropy = self._placed(self.entropy, rows, met.entropy)
        self.shares = self._placed(self.shares, rows, met.shares)
        if met.singled_out is not None:
            self.singled_out = self._placed(self.singled_out, rows, met.singled_out)

    def difference(self) -> float:
        """Mean |gap| over the tokens that the first update met, nats/token."""
        assert self.gap is not None
        return float(masked_mean(self.gap.abs(), self._rollout.completion_mask & ~self.gap.isnan()))

    def apart(self) -> dict[str, float]:
        """The KL from sampler to policy, nats/token, and the effective sample size, over the tokens of the first
        update; empty if the sampler has the policy's own weights."""
        assert self.gap is not None
        mask = self._rollout.counted & ~self.gap.isnan()
        if self._rollout.age is None or not mask.any():
            return {}
        gap = self.gap.masked_fill(~mask, 0)  # log π/π_sampler
        return {"sampling/kl": float(masked_mean(gap.expm1() - gap, mask)),
                "sampling/effective_frac": float(effective_share(gap, mask))}

    @property
    def _sampler(self) -> Tensor:
        rollout = self._rollout
        return rollout.old_logprobs if rollout.sampler_logprobs is None else rollout.sampler_logprobs

    def _placed(self, before: Tensor | None, rows: Tensor, values: Tensor) -> Tensor:
        """`values` in their rows of the batch."""
        whole = torch.full_like(self._sampler, torch.nan) if before is None else before
        whole[rows] = values.to(whole)
        return whole
