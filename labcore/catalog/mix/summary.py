"""The nearest row, the equation and the cautions of a mix. Pure, so that the page can compute them at every change of a
knob."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from labcore.catalog.knob import Value
from labcore.catalog.llm.pretrained import SCRATCH
from labcore.catalog.mix.cautions import cautions
from labcore.catalog.mix.equation import equation
from labcore.catalog.mix.nearest import Nearest, nearest
from labcore.catalog.mix.row import with_every_knob
from labcore.catalog.task import Task


@dataclass(frozen=True)
class MixSummary:
    """The nearest named row, the mix's equation in LaTeX, and its cautions."""

    nearest: Nearest
    latex: str
    cautions: tuple[str, ...]


def summarise(algorithm: str, values: Mapping[str, Value], task: Task, weights: str = SCRATCH) -> MixSummary:
    """Summarise the choices `values` of a mix that began from the row `algorithm`; knobs may be missing. Raises
    LabError if the row is not one of choices."""
    row = with_every_knob(algorithm)
    filled = {knob.key: values.get(knob.key, knob.default) for knob in row.knobs}
    return MixSummary(nearest(algorithm, filled, task, weights=weights), equation(row.loop, filled),
                      tuple(cautions(row.loop, filled)))
