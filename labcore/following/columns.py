"""What the columns of a log are, by all that any of its rows had: its layout, what places rows, what counts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from labcore.runs.imports.layouts import Layout, is_axis, known, layout_of
from labcore.runs.store.rows import COUNTERS


class Columns:
    """The columns of one log; `seen` is kept, and grows. `axes` are those that can place rows, the best first; of these
    `only_axes` mean nothing else."""

    def __init__(self, seen: list[str]):
        self._seen, self._names = seen, set(seen)
        self._learn()

    def learn(self, names: Iterable[str]) -> None:
        """Take note of the columns of a row."""
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
        """What the steps of this axis count: a counter or a metric, or nothing that is known."""
        return next((each.counts for each in self.layout.axes if is_axis(each, axis)), "")

    def number(self, key: str, numbers: Mapping[str, float]) -> float | None:
        """The number for a key by the best of its names; None where there is none that is finite."""
        value = next((numbers[name] for _, name in self._called.get(key, ()) if name in numbers), math.nan)
        return value if math.isfinite(value) else None
