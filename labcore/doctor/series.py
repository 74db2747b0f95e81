"""What the doctor remembers of a run: the recent values of the metrics that rules read, and means of older ones.

Adding a row and asking for a mean take microseconds, and a long run takes little memory.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import stdev

RECENT = 40  # values that are kept one by one
MEDIAN_DIFFERENCE = 0.954  # median of |x − y| of normal x and y, in standard deviations: 0.6745 √2
BLOCK = 10  # values that one mean of the past is made of


@dataclass
class Series:
    """One metric: its newest (step, value) pairs, and the (step, mean) of each block of `BLOCK` values."""

    count: int = 0
    recent: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=RECENT))
    blocks: list[tuple[int, float]] = field(default_factory=list)

    def add(self, step: int, value: float) -> None:
        self.recent.append((step, value))
        self.count += 1
        if self.count % BLOCK == 0:
            self.blocks.append((step, self.mean(BLOCK)))

    def last(self, count: int = BLOCK, before: int = 0) -> list[float]:
        """The newest values, without the newest `before` of them."""
        found = [value for _, value in self.recent]
        return found[max(0, len(found) - before - count):len(found) - before]

    def mean(self, count: int = BLOCK, before: int = 0) -> float:
        """Their mean; 0 where there is none."""
        found = self.last(count, before)
        return sum(found) / len(found) if found else 0.0

    def median(self, count: int = BLOCK, before: int = 0) -> float:
        """Their median (of an even number the larger middle one); 0 where there is none."""
        found = sorted(self.last(count, before))
        return found[len(found) // 2] if found else 0.0

    def steps(self, count: int = BLOCK) -> tuple[int, int]:
        """The first and the last step of the newest values."""
        found = list(self.recent)[-count:]
        return found[0][0], found[-1][0]

    def below_since(self, limit: float) -> int:
        """The first step since which every value lies below a limit; 0 where that is longer ago than values are kept.
        """
        found = list(self.recent)
        for place in range(len(found) - 1, 0, -1):
            if found[place - 1][1] >= limit:
                return found[place][0]
        return 0

    def block_above(self, limit: float) -> int:
        """The last step of the newest block whose mean is at or above a limit; 0 where there is none."""
        return next((step for step, mean in reversed(self.blocks) if mean >= limit), 0)

    @property
    def start(self) -> float:
        """The mean of the first block, or of what there is of it."""
        return self.blocks[0][1] if self.blocks else self.mean()

    def peak(self) -> tuple[int, float]:
        """The step and the mean of the best block."""
        return max(self.blocks, key=lambda block: block[1])

    @property
    def noise(self) -> float:
        """The standard deviation of the blocks' means around their trend, by their differences; 0 of fewer than three
        blocks."""
        steps = [after - before for (_, before), (_, after) in pairwise(self.blocks)]
        return stdev(steps) / math.sqrt(2) if len(steps) > 1 else 0.0

    @property
    def jitter(self) -> float:
        """The standard deviation of a value around its neighbours, by the median of their differences: a jump or two
        do not count. 0 of fewer than two values."""
        steps = sorted(abs(after - before) for before, after in pairwise(self.last(RECENT)))
        return steps[len(steps) // 2] / MEDIAN_DIFFERENCE if steps else 0.0

    def at(self, step: int) -> float:
        """The mean of the last block that ended at or before `step`; the first one's before that."""
        found = [mean for end, mean in self.blocks if end <= step]
        return found[-1] if found else self.start


@dataclass
class NotFinite:
    """The values of one metric that are NaN or infinite: `value` is the first of those since which none was finite,
    `since` its step, and `count` how many there are; 0 while values are finite. `longest` is the largest count of a
    stretch that ended."""

    value: float = 0.0
    since: int = 0
    count: int = 0
    longest: int = 0

    def add(self, step: int, value: float) -> None:
        if math.isfinite(value):
            self.longest, self.count = max(self.longest, self.count), 0
            return
        if not self.count:
            self.value, self.since = value, step
        self.count += 1


class Memory(Mapping[str, Series]):
    """The series of some metrics, by key; a metric that was never logged has none. What is not finite is in no series,
    but counted in `not_finite`."""

    def __init__(self, keys: frozenset[str]):
        self._keys = keys
        self._series: dict[str, Series] = {}
        self.not_finite: dict[str, NotFinite] = {}
        self.step = 0

    def add(self, step: int, metrics: Mapping[str, float]) -> None:
        self.step = step
        for key in self._keys & metrics.keys():
            if key in self.not_finite or not math.isfinite(metrics[key]):
                self.not_finite.setdefault(key, NotFinite()).add(step, metrics[key])
            if math.isfinite(metrics[key]):
                self._series.setdefault(key, Series()).add(step, metrics[key])

    def __getitem__(self, key: str) -> Series:
        return self._series[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._series)

    def __len__(self) -> int:
        return len(self._series)
