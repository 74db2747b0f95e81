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
    def share(self) -> bool:
        """True if its values are shares of 1, which pages write in percent."""
        return self.scale == "rate"

    @property
    def page_unit(self) -> str:
        """The unit as pages write it: "% of completions" for a "share of completions"."""
        return f"%{self.unit.removeprefix('share').removeprefix('probability')}" if self.share else self.unit

    @property
    def page_axis(self) -> str:
        """The title of its axis on a page."""
        return self.label if self.unit in ("", self.label.lower()) else f"{self.label}, {self.page_unit}"

    def on_page(self, value: float) -> float:
        """A value on an axis of a page, in the unit of the page."""
        return 100 * value if self.share else value

    @property
    def inline(self) -> str:
        """The label within a sentence: "exact match", "KL to the reference"."""
        return self.label if self.label[1:2].isupper() else self.label[0].lower() + self.label[1:]
