"""The columns of a log, collected from all its rows: the layout, the step columns and the metrics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from labcore.runs.imports.layouts import Layout, is_axis, known, layout_of
from labcore.runs.store.rows import COUNTERS


class Columns:
    """The columns of one log. `seen` is stored and grows. `axes` are the columns that can be the step, best first;
    `only_axes` are those among them that are not also metrics."""

    def __init__(self, seen: list[str]):
        self._seen, self._names = seen, set(seen)
        self._learn()

    def learn(self, names: Iterable[str]) -> None:
        """Add the columns of a row."""
        if new := [name for name in names if name not in self._names]:
            self._seen += new
            self._names.update(new)
            self._learn()

    def _learn(self) -> None:
        self.layout: Layout = layout_of(self._names)
        self.axes = [name for axis in self.layout.axes for name in self._seen if is_axis(axis, name)]
        self._called: dict[str, list[tuple[int, str]]] = {}  # a key -> (rank, column), the best first
        for name in self._seen:
            for key, rank in known(self.layout, name):
                self._called.setdefault(key, []).append((rank, name))
        for found in self._called.values():
            found.sort()
        counters = {name for key in COUNTERS for _, name in self._called.get(key, ())}
        self.only_axes = {*self.axes} - counters

    def counted_by(self, axis: str) -> str:
        """Return what the steps of this axis count: a counter, a metric, or an empty text."""
        return next((each.counts for each in self.layout.axes if is_axis(each, axis)), "")

    def number(self, key: str, numbers: Mapping[str, float]) -> float | None:
        """Return the number of a key under the best of its names; None if there is no finite number."""
        value = next((numbers[name] for _, name in self._called.get(key, ()) if name in numbers), math.nan)
        return value if math.isfinite(value) else None
