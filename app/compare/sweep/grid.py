"""Arrange the settings of a sweep in a grid, by the values of its one or two knobs, or each by itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from labcore.analysis.compare.table import Group
from labcore.catalog.knob import Knob, Value, shown
from labcore.runs.spec.run_spec import knobs_of

ACROSS = 5  # small charts in a row


@dataclass(frozen=True)
class Grid:
    """Cells in rows and columns, each with the numbers of its groups (several where knobs were changed mid-run).

    `knobs` are the axes: of one, the cells are wrapped into rows; of two, the columns are the first one's values and
    the rows the second one's. Without any, each group is a cell.
    """

    knobs: tuple[Knob, ...]
    rows: int
    columns: int
    cells: Mapping[tuple[int, int], tuple[int, ...]]
    values: tuple[tuple[Value, ...], ...] = ()

    @property
    def numeric(self) -> bool:
        """Whether the one axis, or the first of two, is a number."""
        return bool(self.knobs) and self.knobs[0].type in (int, float)


def grid_of(groups: Sequence[Group], axes: Mapping[str, Sequence[Value]]) -> Grid:
    """The grid of some groups; `axes` are the knobs that differ, with their values. More than two are no grid."""
    specs = [group.traces[0].spec for group in groups]
    known = {knob.key: knob for spec in specs if spec for knob in knobs_of(spec.row, spec.task_row)}
    knobs = tuple(known[key] for key in axes if key in known)
    if not 1 <= len(knobs) <= 2 or len({(spec.algorithm, spec.mix) for spec in specs if spec}) != 1:
        return _wrapped((), [(number,) for number in range(len(groups))])
    values = tuple(tuple(sorted(axes[knob.key]) if knob.type in (int, float) else axes[knob.key]) for knob in knobs)
    if len(knobs) == 1:
        return _wrapped(knobs, [_at(groups, knobs, (value,)) for value in values[0]], values)
    return Grid(knobs, len(values[1]), len(values[0]), {
        (row, column): _at(groups, knobs, (first, second)) for column, first in enumerate(values[0])
        for row, second in enumerate(values[1])}, values)


def _wrapped(knobs: tuple[Knob, ...], cells: Sequence[tuple[int, ...]],
             values: tuple[tuple[Value, ...], ...] = ()) -> Grid:
    across = min(len(cells), ACROSS) if len(cells) != ACROSS + 1 else 3  # six are two threes
    return Grid(knobs, -(-len(cells) // max(across, 1)), across,
                {divmod(place, across): cell for place, cell in enumerate(cells)}, values)


def _at(groups: Sequence[Group], knobs: Sequence[Knob], values: tuple[Value, ...]) -> tuple[int, ...]:
    return tuple(number for number, group in enumerate(groups)
                 if tuple(group.config.get(knob.key) for knob in knobs) == values)


def words(knob: Knob, value: Value) -> str:
    """A knob's value as people write it: "β 0.02"."""
    return f"{knob.name} {shown(value)}"


def title(knob: Knob) -> str:
    """A knob as the title of an axis, with its unit."""
    return f"{knob.title}{f', {knob.unit}' if knob.unit else ''}"
