"""One run out of a file's columns: its rows in the order of their steps, and why other numbers stay in the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress

import numpy as np

from labcore.catalog.metrics import ordered
from labcore.runs.imports.layouts import Axis, Layout, known, plain
from labcore.runs.imports.table import Numbers
from labcore.runs.store.rows import COUNTERS, Step

UNKNOWN = "not known to the lab"
_UNIX_TIME = 1e9  # seconds above it count from 1970, not from the start of a run
_BOTH = ("num_tokens", "total_tokens")  # counts of prompts and completions together
_COUNTED = {"updates": "Its steps are taken for optimizer updates.",
            "env_steps": "Its steps are taken for steps of the environment."}

Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Foreign:
    """One run in a file, under our keys: `columns` of N numbers, (N,) each, in the order of their steps; all
    of COUNTERS, then metrics.

    `there[key]` (N,) says of a metric which rows have it: there its number may be NaN or infinite, elsewhere it is NaN.
    `mapped`: our key -> its column; each of them has a number. `left`: a column -> why it, or some of its numbers, stay
    in the file only. `notes` say what a reader must know of the numbers.
    """

    label: str
    columns: Columns
    there: Columns
    mapped: dict[str, str]
    left: dict[str, str]
    notes: tuple[str, ...]

    @property
    def metrics(self) -> Columns:
        """The metrics that can be drawn, in the catalog's order: NaN where there is no finite number."""
        found = {key: self.columns[key] for key in ordered(self.there)}
        return {key: np.where(np.isfinite(column), column, np.nan) for key, column in found.items()
                if np.isfinite(column).any()}

    def steps(self) -> Iterator[Step]:
        """The rows one by one, with NaN and infinities where the file has them."""
        step, tokens, env_steps = (map(int, self.columns[key].tolist()) for key in COUNTERS[:3])
        seconds, keys = self.columns["seconds"].tolist(), ordered(self.there)
        values = zip(*(self.columns[key].tolist() for key in keys), strict=True)
        there = zip(*(self.there[key].tolist() for key in keys), strict=True)
        metrics = (dict(compress(zip(keys, row, strict=True), has)) for row, has in zip(values, there, strict=True))
        return map(Step, step, tokens, env_steps, seconds, metrics)


@dataclass
class Source:
    """The columns of one run: the line of a W&B chart, or all of any other file. It is `copy` of the `copies` runs of
    its name, from 0.

    `columns` are (place in the header, name). `ranges` are columns with the range of each point. `axes` are the places
    of those that may place its rows; `places` our keys -> the place of their column.
    """

    name: str
    copy: int
    columns: list[tuple[int, str]]
    ranges: list[str] = field(default_factory=list)
    axes: list[tuple[Axis, int]] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    copies: int = 1

    @property
    def metrics(self) -> dict[str, int]:
        """The places of what is no counter."""
        return {key: place for key, place in self.places.items() if key not in COUNTERS}


@dataclass(frozen=True)
class Placed:
    """The step of each of N rows, (N,), NaN where it has none; the axis that says so and the place of its column, None
    where rows are counted."""

    steps: np.ndarray
    axis: Axis | None = None
    place: int | None = None


@dataclass(frozen=True)
class Builder:
    """Makes runs of the rows that were read of a source."""

    header: Sequence[str]
    layout: Layout
    source: Source
    read: Numbers
    placed: Placed

    def run(self, label: str, rows: np.ndarray, left: Mapping[str, str], notes: Sequence[str]) -> Foreign:
        """The run in some rows. Of one step the later number counts; a counter that a row leaves out stays where it
        was. `left` is what is already known to stay in the file."""
        order = rows[np.argsort(self.placed.steps[rows], kind="stable")]
        steps = self.placed.steps[order]
        begins = np.flatnonzero(np.diff(steps, prepend=-1.0))
        columns, there, lost = {"step": steps[begins]}, {}, {}
        for key in COUNTERS[1:]:
            columns[key] = self._counter(key, order, begins)
        for key in ordered(self.source.metrics):
            values, has = self._column(self.source.places[key], order)
            columns[key], there[key], replaced = _latest(values, has, begins)
            if replaced:
                lost[key] = f"{replaced:,} of its {has.sum():,} numbers: a later row has the same step"
        there = {key: has for key, has in there.items() if has.any()}
        columns = {key: column for key, column in columns.items() if key in COUNTERS or key in there}
        mapped = self._mapped(columns, there)
        notes = [*notes, *self._counted(columns, there), *_not_finite(columns, there)]
        losses = {self.header[self.source.places[key]]: why for key, why in lost.items()}
        return Foreign(label, columns, there, mapped, _joined(left, losses, self._left(mapped, there)), tuple(notes))

    def _column(self, place: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.read.values[place][rows], self.read.there[place][rows]

    def _counter(self, key: str, rows: np.ndarray, begins: np.ndarray) -> np.ndarray:
        if key not in self.source.places:
            return np.zeros(begins.size)
        values, _ = self._column(self.source.places[key], rows)
        found = _held(_latest(values, np.isfinite(values), begins)[0])
        return found if key == "seconds" else np.trunc(found)  # the others are kept as whole numbers

    def _mapped(self, columns: Columns, there: Columns) -> dict[str, str]:
        """Our keys -> the columns that they were read from: those that have a number, and no counter that stays 0."""
        titles = dict(self.source.columns)
        step = {} if self.placed.place is None else {"step": titles[self.placed.place]}
        used = [*(key for key in COUNTERS[1:] if columns[key].any()), *ordered(there)]
        return step | {key: titles[self.source.places[key]] for key in used}

    def _left(self, mapped: Mapping[str, str], there: Columns) -> dict[str, str]:
        """The columns that stay in the file, with the reason."""
        found = dict.fromkeys(self.source.ranges, "the range of the points that W&B drew as one")
        used = {place for key, place in self.source.places.items() if key in mapped}
        axes = {place for _, place in self.source.axes}
        for place, title in self.source.columns:
            keys = [key for key, _ in known(self.layout, title)]
            if place in used or place == self.placed.place:
                continue
            if unused := next((key for key, at in self.source.places.items() if at == place), None):
                empty = not self.read.there[place].any()
                found[self.header[place]] = "it is empty" if empty or unused not in COUNTERS else "it stays 0"
            elif place in axes:
                found[self.header[place]] = f"the steps are read from {self.header[self.placed.place or 0]}"
            elif keys:
                found[self.header[place]] = f"{keys[0]} is read from {self.header[self.source.places[keys[0]]]}"
            else:
                found[self.header[place] or "(no name)"] = UNKNOWN
        return found

    def _counted(self, columns: dict[str, np.ndarray], there: dict[str, np.ndarray]) -> Iterator[str]:
        """Fill in what the steps or the rows count, and say so; and what else a reader must know of the counters."""
        counts = self.placed.axis.counts if self.placed.axis else ""
        chart = self.source.name and self.placed.axis and self.placed.axis.column == "step"  # W&B's own, no trainer's
        if counts and not chart and counts not in self.source.places:
            columns[counts] = columns["step"]
            if counts not in COUNTERS:
                there[counts] = np.ones(columns["step"].size, bool)
            yield _COUNTED[counts]
        if self.layout.row:
            yield f"Its steps are {self.layout.row}s."
        for counter, metric in self.layout.sums.items():
            if metric in there:
                lengths = columns[metric]
                columns[counter] = np.cumsum(np.where(np.isfinite(lengths), np.trunc(lengths), 0.0))
                yield f"Its {counter} are the running sum of {self._title(metric)}."
        if "tokens" in self.source.places and self._title("tokens").removeprefix("train/") in _BOTH:
            yield "Its tokens may count the prompts too; the lab's count completions only."
        if columns["seconds"].size and columns["seconds"][0] > _UNIX_TIME:
            columns["seconds"] = columns["seconds"] - columns["seconds"][0]
            yield "Its seconds count from its first row."

    def _title(self, key: str) -> str:
        return plain(self.header[self.source.places[key]].rpartition(" - ")[2])


def _not_finite(columns: Columns, there: Columns) -> Iterator[str]:
    """The sentence about metrics that are NaN or infinite in some rows."""
    broken = {key: ~np.isfinite(columns[key][has]) for key, has in there.items()}
    said = [f"{key} in {wrong.sum():,} of {wrong.size:,} rows, first at step "
            f"{columns['step'][there[key]][wrong][0]:,.0f}" for key, wrong in broken.items() if wrong.any()]
    if said:
        yield f"NaN or infinite: {'; '.join(said)}."


def _joined(*reasons: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in reasons:
        for title, why in each.items():
            found[title] = f"{found[title]}; {why}" if title in found else why
    return found


def _latest(values: np.ndarray, there: np.ndarray, begins: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """The last number of each stretch of rows, where there is one, and how many others differ from it.
    (N,), (N,), (M,) -> (M,), (M,)"""
    last = np.maximum.reduceat(np.where(there, np.arange(values.size), -1), begins)
    found = np.where(last >= 0, values[last], np.nan)
    kept = np.repeat(found, np.diff(np.append(begins, values.size)))
    differs = there & (values != kept) & ~(np.isnan(values) & np.isnan(kept))
    return found, last >= 0, int(differs.sum())


def _held(column: np.ndarray) -> np.ndarray:
    """Numbers, in the place of one that is missing that before it; 0 before the first. (M,) -> (M,)"""
    last = np.maximum.accumulate(np.where(np.isfinite(column), np.arange(column.size), -1))
    return np.where(last >= 0, column[last], 0.0)
