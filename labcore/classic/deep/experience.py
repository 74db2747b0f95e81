"""Collected experience: the steps to learn from, and the returns of the episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

T = TypeVar("T")


@dataclass(frozen=True)
class Batch:
    """T steps of E environments. `next_observations` are those before any reset; `mask` is True where a step counts."""

    observations: Tensor  # (T, E, D) float32
    actions: Tensor  # (T, E) int64
    rewards: Tensor  # (T, E) float32
    next_observations: Tensor  # (T, E, D)
    terminated: Tensor  # (T, E) bool: V(s') = 0
    truncated: Tensor  # (T, E) bool: V(s') stays
    mask: Tensor  # (T, E) bool


@dataclass
class Episodes:
    """The returns of unfinished episodes, and of the episodes that ended since the last `take`."""

    returns: np.ndarray
    lengths: np.ndarray
    ended: list[dict[str, float]] = field(default_factory=list)

    @staticmethod
    def none(count: int) -> Episodes:
        return Episodes(np.zeros(count), np.zeros(count, np.int64))

    def count(self, rewards: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, mask: np.ndarray,
              env_steps: int) -> None:
        """Add T steps, (T, E) each, of which the first began after `env_steps` steps of the run."""
        for t in range(len(rewards)):
            env_steps += int(mask[t].sum())
            self.returns += rewards[t] * mask[t]
            self.lengths += mask[t]
            for index in np.flatnonzero((terminated[t] | truncated[t]) & mask[t]):
                self.ended.append({"env_step": env_steps, "return": float(self.returns[index]),
                                   "length": int(self.lengths[index]), "truncated": bool(truncated[t, index])})
                self.returns[index], self.lengths[index] = 0, 0

    def take(self) -> list[dict[str, float]]:
        """The returns of the ended episodes, in order. They are forgotten afterwards."""
        ended, self.ended = self.ended, []
        return ended


def spread(items: Sequence[T], most: int) -> list[T]:
    """At most `most` (two or more) of the items, evenly chosen, the first and the last among them.

    >>> spread("abcdefg", 3), spread("ab", 3)
    (['a', 'd', 'g'], ['a', 'b'])
    """
    if len(items) <= most:
        return list(items)
    return [items[round(place * (len(items) - 1) / (most - 1))] for place in range(most)]


# ---------------------------------------------------------------- replay
# Experience to learn from more than once: the newest N transitions, drawn with equal chances.
#
# It keeps `terminated` alone: a step that only ran out of time has a future, and its target has one too. Of a one among
# zeros it keeps the place.
#
# Source: Mnih et al. 2013, arXiv:1312.5602.

SEEN = ("observations", "next_observations")


class Transitions(NamedTuple):
    observations: Tensor  # (B, D)
    actions: Tensor  # (B,) int64
    rewards: Tensor  # (B,)
    next_observations: Tensor  # (B, D)
    terminated: Tensor  # (B,) bool
    spans: Tensor  # (B,) int64: how many steps lie between the two observations


class Replay:
    """A ring of `size` transitions, whose memory grows as it is filled.

    With `states` every observation is one-hot.
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
        """Write T × E transitions over the oldest ones. If there are more than `size`, only the newest are kept."""
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
        """The stored transitions, in the order of their places."""
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
