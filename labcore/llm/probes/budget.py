"""Limit the time that a run spends on probes to a tenth, whatever the model.

Small networks are probed on a fixed schedule, which takes about a tenth of a run's time. A step of a larger network may
take seconds or minutes, and the relative cost of a probe depends on the model, the batch and the machine. So each kind
of probe waits until its share of the run's seconds covers its cost. The times of probes depend on this clock; no metric
and no random number of a run does.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf

SAMPLES, LINE = "samples", "line"
SHARES = {SAMPLES: 0.07, LINE: 0.03}  # of the seconds of all steps; together a tenth
EVERY = {SAMPLES: 5, LINE: 20}  # steps from one look to the next, at least
FIRST = {SAMPLES: 0.8, LINE: 1.2}  # what a first look is expected to cost, in steps: see `Budget.affords`
BY_SCHEDULE = 6_000_000  # parameters of the policy up to which the schedule alone decides: all built-in models
GROUP_SHARE = 0.25  # of a step's time divided by its prompts: more than the forward pass of one group takes


class Budget:
    """The clock of a session's probes. A step lies between `begin` and `end`, and each look within `spend`.

    It counts processor time: a run that is paused within a step, or waits for a judge, earns nothing.
    """

    def __init__(self, clock: Callable[[], float] = time.process_time) -> None:
        self._clock = clock
        self._begun: float | None = None
        self._before = 0.0  # seconds of the steps that are complete
        self._steps = 0
        self._spent: dict[str, float] = defaultdict(float)
        self.evaluation = inf  # seconds of the newest evaluation, which samples as the watched prompts do
        self._looks: dict[str, tuple[int, float]] = {}  # the step of the newest look of a kind, and what it cost

    @property
    def seconds(self) -> float:
        """Of all steps, the present one up to now."""
        return self._before + (0.0 if self._begun is None else self._clock() - self._begun)

    @property
    def spent(self) -> float:
        """Seconds of all looks."""
        return sum(self._spent.values())

    def begin(self) -> None:
        """A step begins."""
        self._begun = self._clock()

    def end(self) -> None:
        """The step is complete: stop counting the run's time until the next `begin`."""
        self._before, self._begun, self._steps = self.seconds, None, self._steps + 1

    def affords(self, kind: str, step: int, first: float | None = None) -> bool:
        """True if a probe of this kind is due at `step` and its share of the time covers its expected cost: that of the
        newest probe of the kind, or before the first one `first` seconds, or FIRST."""
        at, cost = self._looks.get(kind, (None, 0.0))
        if at is None:
            return self._left(kind) >= (FIRST[kind] * self._step_seconds if first is None else first)
        return step - at >= EVERY[kind] and self._left(kind) >= cost

    def groups(self, prompts: int) -> int:
        """The number of groups of a batch of `prompts` that fit into the budget before the first look at the run. In
        the first step it is at least one, so that the first completions appear soon; later steps make up for it."""
        if self._spent[SAMPLES]:
            return 0
        paid = int(self._left(SAMPLES) / (GROUP_SHARE * self._step_seconds / prompts))
        return paid if self._steps else max(paid, 1)

    @contextmanager
    def spend(self, kind: str, step: int | None = None) -> Iterator[None]:
        """Time a look, or a part of it. Without a `step` only the first groups are looked at, so the time does not
        count as the cost of a whole look."""
        begun = self._clock()
        try:
            yield
        finally:
            seconds = self._clock() - begun
            self._spent[kind] += seconds
            if step is not None:
                at, cost = self._looks.get(kind, (step, 0.0))
                self._looks[kind] = step, seconds + (cost if at == step else 0.0)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Time an evaluation. It is no look: its numbers are metrics."""
        begun = self._clock()
        yield
        self.evaluation = self._clock() - begun

    def _left(self, kind: str) -> float:
        return SHARES[kind] * self.seconds - self._spent[kind]

    @property
    def _step_seconds(self) -> float:
        """Of a step on average; of the first one, as far as it is."""
        return self.seconds / max(1, self._steps)
