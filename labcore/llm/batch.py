"""Prompts and completions as padded tensors.

Prompts are left-padded, completions right-padded, so that every completion starts in the same column. Masks come
from lengths, never from comparing ids with a pad token: a tokenizer may use one id for both padding and the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from labcore.maths import turns

Ends = int | Sequence[int]


@dataclass(frozen=True)
class Prompts:
    """P prompts: ids (P, S) left-padded and mask (P, S), True = a token of the prompt. `known` are their lengths where
    they are known without a look at the mask, for which the host would have to wait for a GPU."""

    ids: Tensor
    mask: Tensor
    known: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, rows: Tensor | slice) -> Prompts:
        known = self.known
        if known is not None:
            known = known[rows] if isinstance(rows, slice) else tuple(known[row] for row in rows.tolist())
        return Prompts(self.ids[rows], self.mask[rows], known)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of each prompt."""
        return tuple(self.mask.sum(1).tolist()) if self.known is None else self.known


@dataclass(frozen=True)
class Completions:
    """B = P·G completions, sorted by prompt.

    ids (B, T); mask (B, T), True = counts: every token up to and with the end token, of conversations and episodes
    only those that the assistant says; truncated (B,), True where the
    length limit came before the end token. `logprobs` (B, T), nats, are those under which each token was sampled at
    the sampling temperature; None where nothing was sampled.
    """

    ids: Tensor
    mask: Tensor
    truncated: Tensor
    logprobs: Tensor | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def lengths(self) -> Tensor:
        return self.mask.sum(1)

    @property
    def sampled_logprobs(self) -> Tensor:
        """The `logprobs` of completions that were sampled. (B, T) nats"""
        assert self.logprobs is not None, "these were not sampled"
        return self.logprobs

    @property
    def extents(self) -> Tensor:
        """Tokens up to the last one that counts: the `lengths`, unless the mask has holes. (B,)"""
        return turns.extents(self.mask)

    def repeated(self, times: int) -> Completions:
        """All of them several times over, as completions of as many prompts."""
        return Completions(self.ids.repeat(times, 1), self.mask.repeat(times, 1), self.truncated.repeat(times),
                           None if self.logprobs is None else self.logprobs.repeat(times, 1))


def all_ends(eos: Ends) -> list[int]:
    """The end tokens as a list: a model may have one or several."""
    return [eos] if isinstance(eos, int) else [*eos]


def one_end(eos: Ends) -> int:
    """The first end token. It also pads the places after a completion's end."""
    return all_ends(eos)[0]


def is_end(tokens: Tensor, eos: Ends) -> Tensor:
    """True if each token ends its completion. (...) -> bool (...)"""
    first, *others = all_ends(eos)
    found = tokens == first
    for end in others:
        found = found | (tokens == end)
    return found


def padded_prompts(rows: Sequence[Sequence[int]], fill: int, device: torch.device) -> Prompts:
    """Prompts of these ids, padded with `fill` on the left."""
    width = max(map(len, rows))
    ids = torch.tensor([[fill] * (width - len(row)) + [*row] for row in rows], device=device)
    mask = torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in rows], device=device)
    return Prompts(ids, mask, tuple(map(len, rows)))


def padded_completions(rows: Sequence[Sequence[int]], truncated: Sequence[bool], fill: int,
                       device: torch.device) -> Completions:
    """Completions of these ids, padded with `fill` on the right; which of them were cut off."""
    width = max(map(len, rows))
    ids = torch.tensor([[*row] + [fill] * (width - len(row)) for row in rows], device=device)
    mask = torch.tensor([[True] * len(row) + [False] * (width - len(row)) for row in rows], device=device)
    return Completions(ids, mask, torch.tensor([*truncated], device=device))


def decode(tokenizer: PreTrainedTokenizerBase, completions: Completions, eos: Ends) -> list[str]:
    """The text of each completion, without its end token and the padding."""
    ends = {*all_ends(eos)}
    rows = zip(completions.ids.tolist(), completions.lengths.tolist(), strict=True)
    texts = [[token for token in ids[:length] if token not in ends] for ids, length in rows]
    decoded: list[str] = tokenizer.batch_decode(texts, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return decoded
