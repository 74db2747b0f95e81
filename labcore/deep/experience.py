"""What acting leaves behind: the steps to learn from, and the returns of the episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from torch import Tensor

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
    """The returns of episodes under way, and of those that ended since the last `take`."""

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
        """The ended episodes, in order, which are then forgotten."""
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
