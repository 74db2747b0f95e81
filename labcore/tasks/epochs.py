"""Shuffled epochs: every row of a file is drawn once before any is drawn again, in a new order in each epoch.

The order follows from the seed and the number of the epoch alone, so a resumed run or a fork needs only two numbers to
continue: the epoch, and how many of its rows have been drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

SHUFFLED, AT_RANDOM = "shuffled", "random"  # the values of the knob `order`


class Epochs:
    """Draws rows in shuffled epochs. It is given to a task in place of a random generator.

    `size` is the number of rows of an epoch, known once some have been drawn.
    """

    def __init__(self, seed: Sequence[int], epoch: int = 0, drawn: int = 0, size: int = 0) -> None:
        self._seed, self.epoch, self.drawn, self.size = tuple(seed), epoch, drawn, size

    def take(self, size: int, count: int) -> list[tuple[int, int]]:
        """The next `count` of `size` rows: the epoch and the index of each. A count above the size continues in the
        next epochs."""
        self.size, found = size, list[tuple[int, int]]()
        while len(found) < count:
            if self.drawn >= size:
                self.epoch, self.drawn = self.epoch + 1, 0
            order = _order(self._seed, self.epoch, size)
            some = order[self.drawn: self.drawn + count - len(found)].tolist()
            found += [(self.epoch, index) for index in some]
            self.drawn += len(some)
        return found

    def rng(self, epoch: int) -> np.random.Generator:
        """The random numbers of an epoch, from its first one on."""
        return np.random.default_rng((*self._seed, epoch))


@lru_cache(maxsize=4)  # a step asks for a few of what may be a million rows
def _order(seed: tuple[int, ...], epoch: int, size: int) -> np.ndarray:
    return np.random.default_rng((*seed, epoch)).permutation(size)


Chance = np.random.Generator | Epochs  # what a task of the user's file draws rows with
