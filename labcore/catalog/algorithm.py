"""The row of an algorithm in the catalog, whatever it trains."""

from __future__ import annotations

from dataclasses import dataclass

from labcore.catalog.knob import Knob, suggestion
from labcore.catalog.task import Task
from labcore.errors import LabError, quoted

VERIFIED = ("reward", "exact_match", "gold_correlation")  # panels whose numbers a verifier gives


@dataclass(frozen=True)
class Algorithm:
    """A row: `loop` runs it ("online", "temporal_difference", …), `knobs` are its settings with its own defaults.

    `method` is the function ("module:function") that learns, where choices do not say it: of a tabular method the
    update that its loop calls, of a deep one the loop itself. It is imported only when called (`pkgutil.resolve_name`).
    `models` are the networks or tables it holds in memory. `panels` are its charts, most telling first. `source` names
    the functions ("module:function") to show beside the equation, on top of those that its choices name. `verified`
    algorithms need a verifier although their loop does not. `check` ("module:function"), where there is one, says in
    words why it cannot learn a task with its knobs.
    """

    key: str
    label: str
    loop: str
    summary: str
    latex: str
    watch: str
    paper: str
    knobs: tuple[Knob, ...]
    models: tuple[str, ...]
    panels: tuple[str, ...]
    steps: int = 200
    source: tuple[str, ...] = ()
    verified: bool = False
    method: str = ""
    check: str = ""

    def learns(self, task: Task) -> bool:
        """True if it can learn `task`."""
        return self.loop in task.loops and (task.verifiable or not self.verified)

    def charts(self, task: Task) -> tuple[str, ...]:
        """The panels that a run of `task` fills: without a verifier there is no reward."""
        return tuple(key for key in self.panels if task.verifiable or key not in VERIFIED)

    def knob(self, key: str) -> Knob:
        """The knob `key` of this algorithm. Raises LabError if the algorithm has no such knob."""
        for knob in self.knobs:
            if knob.key == key:
                return knob
        known = [knob.key for knob in self.knobs]
        raise LabError(f"{self.label} has no knob {quoted(key)}: {suggestion(key, known)}")
