"""Which row of a decoding pass each completion has: completions of a prompt that begin alike share one.

    completions   a a b, a a c, a d   ->   rows   a   ->   a a, a d   ->   a a b, a a c

A completion that has ended has no row. The cache of keys and values has a column for each row, and the R rows are in
its first R columns. If several rows continue one row, the first of them keeps its column, and the others get a copy of
it. If rows end, rows in columns beyond R move to free columns.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


class Branches:
    """The rows of P prompts with P·G completions. Before the first token each prompt is one row.

    `of` (B,) is the row of each completion, `prompts` (R,) the prompt of each row. After `extended` the caller copies
    the columns `copied` of the cache to the columns `copies`. Completions share rows only on a processor, because the
    program would have to wait for another device to know how many rows there are.
    """

    def __init__(self, prompts: int, group_size: int, device: torch.device):
        self.prompts = torch.arange(prompts, device=device)
        self.of = self.prompts.repeat_interleave(group_size)
        self.copied = self.copies = self.of[:0]

    def spread(self, values: Tensor) -> Tensor:
        """The values (R, …) of the rows at each completion; those of completions that have ended have no meaning."""
        return values.index_select(0, self.of)

    def extended(self, token: Tensor, going: Tensor) -> Tensor:
        """Append its `token` (B,) to each completion that is `going` on (B,). Returns the last token of each row.
        At least one completion must be going on."""
        if token.device.type != "cpu":
            return self._apart(token)
        size = int(token.max()) + 1
        found, row = torch.unique((self.of * size + token)[going], return_inverse=True)  # sorted by parent
        parent, last = found // size, found % size
        count = len(found)
        stays = (parent != F.pad(parent, (1, -1), value=-1)) & (parent < count)  # the first of each parent's rows
        place, free = parent.clone(), parent.new_ones(count, dtype=torch.bool)
        free[parent[stays]] = False
        place[~stays] = free.nonzero()[:, 0]
        self.copied, self.copies = parent[~stays], place[~stays]
        self.of = torch.zeros_like(self.of).masked_scatter(going, place[row])
        self.prompts = torch.empty_like(parent).index_copy(0, place, self.prompts[parent])
        return torch.empty_like(last).index_copy(0, place, last)

    def _apart(self, token: Tensor) -> Tensor:
        """Give each completion its own row, from its first token to the end of sampling, even if it ends before."""
        self.copied = self.copies = self.of[:0]
        if len(self.prompts) < len(self.of):
            self.prompts = self.copied = self.of
            self.of = self.copies = torch.arange(len(token), device=token.device)
        return token
