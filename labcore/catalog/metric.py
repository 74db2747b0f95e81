"""A metric: one number that a run logs, declared as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# What charts are about: those of one family share a hue.
ChartFamily = Literal["reward", "divergence", "entropy", "clip", "critic", "gradient", "system"]


@dataclass(frozen=True)
class Metric:
    """One logged number.

    `about` separates what the run learnt ("training": equal for equal seeds) from what the machine did
    ("machine": speed and memory, different every time). `better` says which of two values is the better one; empty
    where neither is (an entropy, a learning rate). `short` names its line among those of one chart. `kind` is the kind
    of run that alone logs it. `chart` gives it a chart of its own, in a family of charts, which every run that logs it
    has; without one it is drawn where `panels` names it. `now` says how far a run is, with {} for the value, such as
    "correct in {}"; empty where the metric does not say that.
    """

    key: str
    label: str
    unit: str
    help: str
    symbol: str = ""
    healthy: str = ""
    scale: Literal["linear", "rate", "symlog"] = "linear"
    digits: int = 3
    about: Literal["training", "machine"] = "training"
    better: Literal["higher", "lower", ""] = ""
    short: str = ""
    kind: str = ""
    chart: ChartFamily | None = None
    now: str = ""

    @property
    def line(self) -> str:
        """The name of its line in a chart of several: the label, or the part behind its last comma."""
        return self.short or self.label.rpartition(", ")[2]

    @property
    def axis(self) -> str:
        """The title of its axis: the label and its unit, once where they are the same word."""
        return self.label if self.unit in ("", self.label.lower()) else f"{self.label}, {self.unit}"

    @property
    def inline(self) -> str:
        """The label within a sentence: "exact match", "KL to the reference"."""
        return self.label if self.label[1:2].isupper() else self.label[0].lower() + self.label[1:]
