"""All that is to be said of a mix at once: pure, so that the page can say it at every touch of a knob."""

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
class Look:
    """The nearest named row, the mix's equation in LaTeX, and what to beware of."""

    nearest: Nearest
    latex: str
    cautions: tuple[str, ...]


def look(algorithm: str, values: Mapping[str, Value], task: Task, weights: str = SCRATCH) -> Look:
    """The choices `values` that began from the row `algorithm`; knobs that it does not have may be missing.

    Raises:
        LabError: the row is not one of choices.
    """
    row = with_every_knob(algorithm)
    filled = {knob.key: values.get(knob.key, knob.default) for knob in row.knobs}
    return Look(nearest(algorithm, filled, task, weights=weights), equation(row.loop, filled),
                tuple(cautions(row.loop, filled)))
