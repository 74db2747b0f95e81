"""The score that a reward model gives a completion: its value at the last token, the end token included."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from labcore.llm.batch import Completions, Prompts
from labcore.llm.nets.critic import Critic
from labcore.llm.nets.forward import completion_outputs, precision
from labcore.llm.nets.micro_batches import WHOLE, Room, micro_batches


def last_values(model: Critic, prompts: Prompts, ids: Tensor, mask: Tensor, dtype: str) -> Tensor:
    """The value after the last token that counts, with its gradient. ids and mask (B, T) -> (B,) reward"""
    with precision(model, dtype):
        values = completion_outputs(model, prompts, pad(ids, (0, 1)))[..., 0].float()  # the value before each token
    return values.gather(1, mask.sum(1, keepdim=True))[:, 0]


@torch.no_grad()
def scores(model: Critic, prompts: Prompts, completions: Completions, dtype: str, room: Room = WHOLE) -> Tensor:
    """The scores of B completions, of any number of prompts. (B,) reward"""
    return torch.cat([last_values(model, prompts[some], completions.ids[rows], completions.mask[rows], dtype)
                      for some, rows in micro_batches(model, prompts, completions.ids, room)])
