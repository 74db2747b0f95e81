"""Experience to learn from more than once: the newest N transitions, drawn with equal chances.

It keeps `terminated` alone: a step that only ran out of time has a future, and its target has one too. Of a one among
zeros it keeps the place.

Source: Mnih et al. 2013, arXiv:1312.5602.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

SEEN = ("observations", "next_observations")


class Transitions(NamedTuple):
    observations: Tensor  # (B, D)
    actions: Tensor  # (B,) int64
    rewards: Tensor  # (B,)
    next_observations: Tensor  # (B, D)
    terminated: Tensor  # (B,) bool
    spans: Tensor  # (B,) int64: how many steps lie between the two observations


class Replay:
    """A ring of `size` transitions, in memory that is taken as it is needed.

    With `states` every observation is a one among zeros.
    """

    def __init__(self, size: int, observation_size: int, device: torch.device, states: bool = False):
        self.size, self.written = size, 0
        self._places = observation_size if states else 0
        seen, following = (torch.empty(size, dtype=torch.int64, device=device) if states
                           else torch.empty(size, observation_size, device=device) for _ in range(2))
        self._columns = Transitions(
            seen, torch.empty(size, dtype=torch.int64, device=device), torch.empty(size, device=device), following,
            torch.empty(size, dtype=torch.bool, device=device), torch.empty(size, dtype=torch.int64, device=device))

    def __len__(self) -> int:
        return min(self.written, self.size)

    def add(self, transitions: Transitions) -> None:
        """Write T x E transitions over the oldest; of more than fit, the newest stay."""
        new = self._packed(Transitions(*(column.flatten(0, 1)[-self.size:] for column in transitions)))
        at = (self.written + torch.arange(len(new.actions), device=new.actions.device)) % self.size
        for column, values in zip(self._columns, new, strict=True):
            column[at] = values
        self.written += len(new.actions)

    def sample(self, count: int, generator: torch.Generator) -> Transitions:
        """`count` transitions, drawn with replacement."""
        rows = torch.randint(len(self), (count,), generator=generator, device=generator.device)
        drawn = Transitions(*(column[rows] for column in self._columns))
        if not self._places:
            return drawn
        return drawn._replace(**{name: one_hot(getattr(drawn, name), self._places).float() for name in SEEN})

    def tensors(self) -> dict[str, Tensor]:
        """What is in it, in the order of its places."""
        kept = {name: column[: len(self)] for name, column in self._columns._asdict().items()}
        return {**kept, "written": torch.tensor(self.written)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """The inverse of `tensors`."""
        self.written = int(tensors["written"])
        tensors = {"spans": torch.ones(len(tensors["actions"]), dtype=torch.int64)} | tensors  # earlier ones have none
        kept = self._packed(Transitions(*(tensors[name] for name in Transitions._fields)))
        for column, values in zip(self._columns, kept, strict=True):
            column[: len(self)] = values

    def _packed(self, rows: Transitions) -> Transitions:
        """Observations as they are kept; places stay as they are. Earlier checkpoints have whole rows."""
        if not self._places or rows.observations.ndim == 1:
            return rows
        return rows._replace(**{name: getattr(rows, name).argmax(-1) for name in SEEN})
