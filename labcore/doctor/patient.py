"""The run as a rule sees it: its series, its knobs as they are now, and how far from a limit it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from labcore.catalog.choices import ADVANTAGE
from labcore.catalog.knob import Knob, Value
from labcore.doctor.series import BLOCK, Memory, Series

RELEASE = 0.8  # a rule that holds is let go at this share of its limit, so that a value near it does not flicker
NOISE = 2  # rows
SOLVED = 0.9  # share of right answers above which all-right groups and little entropy are success


@dataclass(frozen=True)
class Turn:
    """A knob that was turned: `step` is the first with its new value."""

    knob: str
    step: int
    before: Value
    after: Value


@dataclass(frozen=True)
class Patient:
    """`knobs` are the values in use, `declared` the knobs by their keys: both empty for metrics of another tool.

    `turns` are the turns of knobs of late, in their order. `held`: the rule that looks held at its last look.
    """

    memory: Memory
    knobs: Mapping[str, Value] = field(default_factory=dict)
    declared: Mapping[str, Knob] = field(default_factory=dict)
    turns: Sequence[Turn] = ()
    held: bool = False

    def __getitem__(self, key: str) -> Series:
        return self.memory[key]

    def __contains__(self, key: str) -> bool:
        return key in self.memory

    def above(self, value: float, limit: float) -> bool:
        """Whether a value is beyond an upper limit; a smaller one for what held before."""
        return value > limit * (RELEASE if self.held else 1)

    def below(self, value: float, limit: float) -> bool:
        """The same of a lower limit."""
        return value < limit / (RELEASE if self.held else 1)

    @property
    def success(self) -> Series | None:
        """The share of right answers: of accepted completions, else a reward; None where neither is logged."""
        return next((self.memory[key] for key in ("exact_match", "reward") if key in self.memory), None)

    @property
    def supervised(self) -> bool:
        """Whether it learns given answers: a base that does not answer or end yet is no fault of its own."""
        return "mean_token_accuracy" in self.memory

    @property
    def solved(self) -> bool:
        """Whether nearly all answers are right. A reward that is no share is never solved by its size alone."""
        return self.success is not None and SOLVED <= self.success.mean() <= 1

    @property
    def by_group(self) -> bool:
        """Whether completions are compared within their group; taken for granted where the knobs are not known."""
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

    def turned_before(self, step: int, within: int) -> Turn | None:
        """The last turn of a knob in the `within` steps before a step, else the first in the NOISE steps after it: a
        noisy row may have come before what followed."""
        before = [turn for turn in self.turns if step - within <= turn.step <= step]
        after = [turn for turn in self.turns if step < turn.step <= step + NOISE]
        return before[-1] if before else after[0] if after else None

    def usual(self, *keys: str) -> bool:
        """Whether the run has the defaults of all knobs among `keys` that it has."""
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
    """A share in per cent, with a narrow space that does not break."""
    return f"{value:.0%}".replace("%", "\u202f%")


def number(value: float) -> str:
    """Three significant digits."""
    return "0" if abs(value) < 1e-9 else f"{value:.3g}"
