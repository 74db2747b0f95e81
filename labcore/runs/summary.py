"""What a list shows of a run without reading all its steps again: a thin curve, its last and best value, its size.

A summary only grows: the steps that came since are added to it, however many there were before.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from labcore.catalog.metrics import METRICS
from labcore.catalog.panels import PANELS
from labcore.spec.run_spec import RunSpec

POINTS = 40  # a curve has from as many points to twice as many


@dataclass(frozen=True)
class Summary:
    """The headline metric of a run up to `step`.

    `line` holds every `stride`-th of its `count` values, the first one included, as they were logged. `size` is the
    bytes of the run's files as they were `counted`, a unix time; None where nobody has counted them.
    """

    metric: str = ""
    step: int = 0
    line: tuple[float, ...] = ()
    stride: int = 1
    count: int = 0
    last: float | None = None
    best: float | None = None
    size: int | None = None
    counted: float = 0.0

    def extended(self, step: int, values: Iterable[float | None]) -> Summary:
        """The summary up to `step`, with the values of the steps since; None where a step has none."""
        line, stride, count, last, best = list(self.line), self.stride, self.count, self.last, self.best
        better = {"higher": max, "lower": min}.get(METRICS[self.metric].better)
        for value in values:
            if value is None or not math.isfinite(value):
                continue
            if count % stride == 0:
                line.append(float(f"{value:.5g}"))
                if len(line) > 2 * POINTS:
                    line, stride = line[::2], 2 * stride
            count, last = count + 1, value
            if better:
                best = value if best is None else better(best, value)
        return replace(self, step=step, line=tuple(line), stride=stride, count=count, last=last, best=best)

    @property
    def curve(self) -> list[float]:
        """The values to draw, in order: the last one is always there."""
        if self.last is None or (self.count - 1) % self.stride == 0:
            return list(self.line)
        return [*self.line, self.last]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def read(text: str | None, metric: str | None = None) -> Summary:
        """The summary written by `to_json`; an empty one where there is none, or none of `metric`."""
        try:
            fields = json.loads(text or "{}")
            found = Summary(**{**fields, "line": tuple(fields.get("line", ()))})
        except (ValueError, TypeError, AttributeError):  # of another version: it can be made again
            found = Summary()
        return found if metric in (None, found.metric) else Summary(metric)


def headline(spec: RunSpec) -> str:
    """The headline metric of a run: the first of its first chart."""
    return PANELS[spec.row.charts(spec.task_row)[0]].metrics[0]


def headline_among(metrics: Sequence[str]) -> str:
    """The headline metric of a run of another tool: the catalog's first that says what is better."""
    known = [metric for metric in METRICS.values() if metric.key in metrics]
    return next((metric.key for metric in known if metric.better), known[0].key if known else "")
