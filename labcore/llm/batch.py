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

from labcore.errors import LabError


@dataclass(frozen=True)
class Prompts:
    """P prompts: ids (P, S) left-padded and mask (P, S), True = a token of the prompt."""

    ids: Tensor
    mask: Tensor

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, rows: Tensor | slice) -> Prompts:
        return Prompts(self.ids[rows], self.mask[rows])


@dataclass(frozen=True)
class Completions:
    """B = P·G completions, those of one prompt together.

    ids (B, T); mask (B, T), True = counts: every token up to and with the end token; truncated (B,), True where the
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

    def repeated(self, times: int) -> Completions:
        """All of them several times over, as completions of as many prompts."""
        return Completions(self.ids.repeat(times, 1), self.mask.repeat(times, 1), self.truncated.repeat(times),
                           None if self.logprobs is None else self.logprobs.repeat(times, 1))


def encode_prompts(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], room: int, device: torch.device,
                   where: Sequence[str] = ()) -> Prompts:
    """Tokenise prompts of at most `room` tokens: the model's context less what the completion needs.

    Raises:
        LabError: a prompt is empty or longer than `room`; `where` names the line it came from.
    """
    rows = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    for index, row in enumerate(rows):
        place = f" ({where[index]})" if index < len(where) and where[index] else ""
        if not row:
            raise LabError(f"A prompt{place} is empty: give every prompt at least one character.")
        if len(row) > room:
            raise LabError(f"A prompt{place} has {len(row)} tokens, but the model has room for {room} before the "
                           "completion: shorten it, lower max_new_tokens, or choose a model with a longer context.")
    width = max(map(len, rows))
    fill = tokenizer.pad_token_id
    ids = torch.tensor([[fill] * (width - len(row)) + row for row in rows], device=device)
    mask = torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in rows], device=device)
    return Prompts(ids, mask)


def encode_completions(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], limit: int, device: torch.device,
                       unended: Sequence[bool] = ()) -> Completions:
    """Tokenise given answers and end each with the end token; what does not fit into `limit` tokens is cut.

    Where `unended` is True the answer was itself cut when it was sampled, and gets no end token.
    """
    rows = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    ends = [[] if cut else [tokenizer.eos_token_id] for cut in (unended or [False] * len(rows))]
    ended = [(row + end)[:limit] for row, end in zip(rows, ends, strict=True)]
    width = max(map(len, ended))
    fill = tokenizer.pad_token_id
    ids = torch.tensor([row + [fill] * (width - len(row)) for row in ended], device=device)
    mask = torch.tensor([[True] * len(row) + [False] * (width - len(row)) for row in ended], device=device)
    truncated = torch.tensor([not end or len(row) >= limit for row, end in zip(rows, ends, strict=True)],
                             device=device)
    return Completions(ids, mask, truncated)


def decode(tokenizer: PreTrainedTokenizerBase, completions: Completions) -> list[str]:
    """The text of each completion, without the end token and the padding."""
    ends = tokenizer.eos_token_id
    rows = zip(completions.ids.tolist(), completions.lengths.tolist(), strict=True)
    texts = [[token for token in ids[:length] if token != ends] for ids, length in rows]
    return tokenizer.batch_decode(texts, skip_special_tokens=False, clean_up_tokenization_spaces=False)
