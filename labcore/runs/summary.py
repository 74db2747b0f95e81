"""Summaries of runs for lists: a thin curve, the last and best value, and the size, without reading all steps again.

A summary only grows: the steps that came since are added to it, however many there were before.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from labcore.catalog.metrics import METRICS
from labcore.catalog.panels import PANELS
from labcore.runs.files import sizes
from labcore.runs.files.paths import run_folder
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.store.rows import ACTIVE, RunRow
from labcore.runs.store.store import Store

POINTS = 40  # a curve has from POINTS to twice as many points


@dataclass(frozen=True)
class Summary:
    """The headline metric of a run up to `step`.

    `line` holds every `stride`-th of its `count` values, the first one included, as they were logged. `size` is the
    bytes of the run's files at the unix time `counted`; None if they have not been counted.
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
    """The headline metric of a run of another tool: the first metric of the catalog with a better direction."""
    known = [metric for metric in METRICS.values() if metric.key in metrics]
    return next((metric.key for metric in known if metric.better), known[0].key if known else "")


# ---------------------------------------------------------------- digest
# The summary of a run brought up to the run as it is. Its worker does so at its end, so that no list has to read it.
#
# What nobody brought up, such as a run whose worker was killed, is brought up by the first list that shows it.

SIZE_SECONDS = 10.0  # how long the size of an active run counts
FOREVER = float("inf")


def keep(store: Store, run_id: str) -> None:
    """Keep the summary of an ended run, unless it is resumed meanwhile. Raises LabError where nothing can be written.
    """
    row = store.run(run_id)
    summary = current(store, row, Summary.read(store.summaries([run_id]).get(run_id), headline(row.spec)))
    store.keep_summary(row, summary.to_json())


def current(store: Store, row: RunRow, summary: Summary) -> Summary:
    """The summary brought up to date: with the rows since then, and the size of the files if they may have changed."""
    if summary.step < row.step:
        steps, *_, values = store.columns([row.id], [summary.metric], summary.step)[row.id]
        summary = summary.extended(steps[-1] if steps else row.step, values)
    good_until = summary.counted + SIZE_SECONDS if row.state in ACTIVE else FOREVER
    changed = max(row.ended or 0.0, _exported(row.id))
    if summary.size is None or summary.counted < changed or time.time() > good_until:
        summary = sized(summary, run_folder(row.id))
    return summary


def sized(summary: Summary, folder: Path) -> Summary:
    """The summary with the files of the folder counted."""
    begun = time.time()  # files written during the count are counted the next time
    return replace(summary, size=sizes.size(folder), counted=begun)


def _exported(run_id: str) -> float:
    """When the run was last exported into its own folder, which may be after its end; 0 if it never was."""
    with suppress(FileNotFoundError):
        return os.stat(f"{run_folder(run_id)}/export").st_mtime
    return 0.0
