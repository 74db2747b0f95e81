"""Experience to learn from more than once: the newest N transitions, drawn with equal chances.

It keeps `terminated` alone: a step that only ran out of time has a future, and its target has one too.

Source: Mnih et al. 2013, arXiv:1312.5602.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from labcore.classic.rollout import Batch


class Transitions(NamedTuple):
    observations: Tensor  # (B, D)
    actions: Tensor  # (B,) int64
    rewards: Tensor  # (B,)
    next_observations: Tensor  # (B, D)
    terminated: Tensor  # (B,) bool


class Replay:
    """A ring of `size` transitions, in memory that is taken as it is needed."""

    def __init__(self, size: int, observation_size: int, device: torch.device):
        self.size, self.written = size, 0
        self._columns = Transitions(
            torch.empty(size, observation_size, device=device), torch.empty(size, dtype=torch.int64, device=device),
            torch.empty(size, device=device), torch.empty(size, observation_size, device=device),
            torch.empty(size, dtype=torch.bool, device=device))

    def __len__(self) -> int:
        return min(self.written, self.size)

    def add(self, batch: Batch) -> None:
        """Write T x E transitions over the oldest; of more than fit, the newest stay."""
        new = Transitions(*(getattr(batch, name).flatten(0, 1)[-self.size:] for name in Transitions._fields))
        at = (self.written + torch.arange(len(new.actions), device=new.actions.device)) % self.size
        for column, values in zip(self._columns, new, strict=True):
            column[at] = values
        self.written += len(new.actions)

    def sample(self, count: int, generator: torch.Generator) -> Transitions:
        """`count` transitions, drawn with replacement."""
        rows = torch.randint(len(self), (count,), generator=generator, device=generator.device)
        return Transitions(*(column[rows] for column in self._columns))

    def tensors(self) -> dict[str, Tensor]:
        """What is in it, in the order of its places."""
        kept = {name: column[: len(self)] for name, column in self._columns._asdict().items()}
        return {**kept, "written": torch.tensor(self.written)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """The inverse of `tensors`."""
        self.written = int(tensors["written"])
        for name, column in self._columns._asdict().items():
            column[: len(self)] = tensors[name]
