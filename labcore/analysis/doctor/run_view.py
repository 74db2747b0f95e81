"""The doctor's view of a run: recent values of the metrics that rules read, and means of older values.

Adding a row and asking for a mean take microseconds, and a long run takes little memory.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import stdev
from typing import Any

from labcore.catalog.amounts import percent
from labcore.catalog.choices import ADVANTAGE
from labcore.catalog.knob import Knob, Value

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

    def span(self, count: int) -> int:
        """The number of steps in the last `count` rows, because many trainers log only every tenth step."""
        found = list(self.recent)
        return found[-1][0] - found[max(0, len(found) - 1 - count)][0]

    def below_since(self, limit: float) -> int:
        """The first step since which every value has been below a limit; 0 if that step is older than the values that
        are kept."""
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
    def low(self) -> float:
        """The mean of the lowest block."""
        return min(mean for _, mean in self.blocks)

    @property
    def noise(self) -> float:
        """The standard deviation of the blocks' means around their trend, computed from their differences; 0 for fewer
        than three blocks."""
        steps = [after - before for (_, before), (_, after) in pairwise(self.blocks)]
        return stdev(steps) / math.sqrt(2) if len(steps) > 1 else 0.0

    @property
    def jitter(self) -> float:
        """The standard deviation of a value around its neighbours, computed from the median of their differences, so
        that single jumps do not count. 0 for fewer than two values."""
        steps = sorted(abs(after - before) for before, after in pairwise(self.last(RECENT)))
        return steps[len(steps) // 2] / MEDIAN_DIFFERENCE if steps else 0.0

    def at(self, step: int) -> float:
        """The mean of the last block that ended at or before `step`; before the end of the first block, the mean of the
        first block."""
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


# ---------------------------------------------------------------- view
# The run as a rule sees it: its series, its knobs as they are now, and how far from a limit it is.

RELEASE = 0.8  # a rule that holds is let go at this share of its limit, so that a value near it does not flicker
NOISE = 2  # rows
SOLVED = 0.9  # share of right answers above which all-right groups and little entropy are success


@dataclass(frozen=True)
class KnobChange:
    """A change of a knob: `step` is the first with its new value."""

    knob: str
    step: int
    before: Value
    after: Value


@dataclass(frozen=True)
class RunView:
    """`knobs` are the values in use, `declared` the knobs by their keys: both empty for metrics of another tool.

    `changes` are the recent changes of knobs, in their order. `held`: the rule that looks held at its last look.
    """

    memory: Memory
    knobs: Mapping[str, Value] = field(default_factory=dict)
    declared: Mapping[str, Knob] = field(default_factory=dict)
    changes: Sequence[KnobChange] = ()
    held: bool = False

    def __getitem__(self, key: str) -> Series:
        return self.memory[key]

    def __contains__(self, key: str) -> bool:
        return key in self.memory

    def above(self, value: float, limit: float) -> bool:
        """True if a value is above an upper limit. For a rule that already holds the limit is lower, so that a value
        near it does not flicker."""
        return value > limit * (RELEASE if self.held else 1)

    def below(self, value: float, limit: float) -> bool:
        """True if a value is below a lower limit. For a rule that already holds the limit is higher."""
        return value < limit / (RELEASE if self.held else 1)

    @property
    def success(self) -> Series | None:
        """The share of right answers: of accepted completions, else a reward; None where neither is logged."""
        return next((self.memory[key] for key in ("exact_match", "reward") if key in self.memory), None)

    @property
    def supervised(self) -> bool:
        """True if the run learns given answers. Then it is no fault that the base does not answer or end its
        completions yet."""
        return "mean_token_accuracy" in self.memory

    @property
    def solved(self) -> bool:
        """True if nearly all answers are right. A reward that is no share is never solved by its size alone."""
        return self.success is not None and SOLVED <= self.success.mean() <= 1

    @property
    def by_group(self) -> bool:
        """True if completions are compared within their group; taken for granted where the knobs are not known."""
        advantage = self.knobs.get("advantage")
        return advantage is None or ADVANTAGE[str(advantage)].group

    def scaled(self, key: str, factor: float) -> dict[str, Any]:
        """The knob of a fix, at `factor` times its value, within its bounds; empty where there is no such knob."""
        knob = self.declared.get(key)
        if knob is None or not self.knobs[key]:
            return {}
        exact = float(self.knobs[key]) * factor
        value = round(exact) if knob.type is int else float(f"{exact:.2g}")
        if knob.high is not None:
            value = min(value, knob.type(knob.high))
        return self.fix(key, value)

    def change_before(self, step: int, within: int) -> KnobChange | None:
        """The last change of a knob in the `within` steps before a step, otherwise the first in the NOISE steps after
        it, because noise may hide at which row the effect of a change began."""
        before = [change for change in self.changes if step - within <= change.step <= step]
        after = [change for change in self.changes if step < change.step <= step + NOISE]
        return before[-1] if before else after[0] if after else None

    def usual(self, *keys: str) -> bool:
        """True if the run has the defaults of all knobs among `keys` that it has."""
        return all(self.knobs[key] == self.declared[key].default for key in keys if key in self.declared)

    def fix(self, key: str, value: Value) -> dict[str, Any]:
        """The knob of a fix; empty where the run has none of this name, or has it at this value already."""
        knob = self.declared.get(key)
        if knob is None or self.knobs[key] == value or (knob.choices and value not in knob.choices):
            return {}
        return {"knob": key, "value": value}

    def when(self, key: str, count: int = BLOCK) -> str:
        """ "steps 31 to 40": those of a metric's newest values."""
        first, last = self.memory[key].steps(count)
        return f"step {last:,}" if first == last else f"steps {first:,} to {last:,}"


def share(value: float) -> str:
    """A share in per cent."""
    return percent(value)


def number(value: float) -> str:
    """Three significant digits."""
    return "0" if abs(value) < 1e-9 else f"{value:.3g}"
