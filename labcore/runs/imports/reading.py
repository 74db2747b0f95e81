"""Metrics of other tools read as runs under our keys: files of any kind that `kinds` knows, in any layout of `layouts`.

Everything in a file is read, or named with the reason why it is not.
"""

from __future__ import annotations

import codecs
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from labcore.errors import LabError
from labcore.runs.files.untrusted import GZIP
from labcore.runs.imports import kinds
from labcore.runs.imports import table as numbers
from labcore.runs.imports.layouts import OWN, RUN_COLUMNS, Layout, is_axis, known, layout_of, plain
from labcore.runs.imports.run import UNKNOWN, Builder, Foreign, Placed, Source
from labcore.runs.imports.table import Numbers, Table
from labcore.runs.store.rows import COUNTERS

# ---------------------------------------------------------------- parts
# Which rows of a table are one run: a file may hold several, and no number of one may replace one of another.

OFTEN = 0.5  # above this share of steps with two numbers, the file has rows of several runs in turn
MOST_TURNS = 16  # runs that are told apart by their order: with more rows per step it is the step that tells nothing

Columns = Sequence[tuple[np.ndarray, np.ndarray]]  # (values, there) of each metric, (N,) each


@dataclass(frozen=True)
class Part:
    """The rows of one run in the order of the file, (M,); the name that the file gives the run; and the value that
    distinguishes it from the other runs of the file."""

    rows: np.ndarray
    name: str = ""
    why: str = ""


def split(rows: np.ndarray, steps: np.ndarray, columns: Columns, lines: np.ndarray,
          names: Mapping[str, Sequence[str]]) -> list[Part]:
    """The runs in M of N rows, which all have a step. `steps` and `lines` are (N,); `names` are columns of M texts that
    may name the run of a row.

    Rows in disorder are one run; there are several runs only if a step has a metric twice. These are told apart by a
    column that names them, by steps that begin again, or, where most steps have two numbers, by their order.
    """
    whole = _restarts(rows, steps, columns)
    if len(whole) == 1 and not _clashes(rows, steps, columns).any():
        return [Part(rows)]
    for column, texts in names.items():
        of = np.array(texts)
        found = {name: rows[of == name] for name in dict.fromkeys(texts)}
        if len(found) > 1 and not any(_clashes(own, steps, columns).any() for own in found.values()):
            return [Part(own, name, f"the column {column}") for name, own in found.items()]
    turns = [own for each in whole for own in _turns(each, steps, columns)]
    if len(turns) > len(whole):
        return [Part(own, why="two values at most steps") for own in turns]
    return [Part(own, why="" if len(whole) == 1 else f"steps that begin again in line {lines[whole[1][0]]:,}")
            for own in whole]


def _restarts(rows: np.ndarray, steps: np.ndarray, columns: Columns) -> list[np.ndarray]:
    """The rows, cut where steps go back and a column has a number at a step at which it had one."""
    begins = np.concatenate([[0], np.flatnonzero(np.diff(steps[rows]) < 0) + 1])
    stretch = np.full(steps.size, -1)
    stretch[rows] = np.searchsorted(begins, np.arange(rows.size), side="right") - 1
    before = np.full(steps.size, -1)  # of each row the newest earlier one with a number at its step, in another stretch
    for _, there in columns:
        order, first = _by_step(rows[there[rows]], steps)
        again = order[1:][~first[1:]]
        earlier = order[:-1][~first[1:]]
        apart = stretch[again] != stretch[earlier]
        before[again[apart]] = np.maximum(before[again[apart]], earlier[apart])
    newest = np.maximum.reduceat(before[rows], begins)
    cuts: list[int] = []
    for begin, last in zip(begins.tolist(), newest.tolist(), strict=True):
        if begin and last >= rows[cuts[-1] if cuts else 0]:
            cuts.append(begin)
    return np.split(rows, cuts)


def _clashes(rows: np.ndarray, steps: np.ndarray, columns: Columns) -> np.ndarray:
    """Of each of some rows whether the one before it at its step has another number in the same column. (M,)"""
    found = np.zeros(steps.size, bool)
    for values, there in columns:
        order, first = _by_step(rows[there[rows]], steps)
        differs = ~first[1:] & ~np.isclose(values[order[1:]], values[order[:-1]], rtol=0, atol=0, equal_nan=True)
        found[order[1:][differs]] = True
    clashes: np.ndarray = found[rows]
    return clashes


def _turns(rows: np.ndarray, steps: np.ndarray, columns: Columns) -> list[np.ndarray]:
    """Rows of several runs that were written in turn: the first number of each step, the second of each, and so on."""
    clashing = np.unique(steps[rows[_clashes(rows, steps, columns)]]).size
    if clashing <= OFTEN * np.unique(steps[rows]).size:
        return [rows]
    turn = np.zeros(steps.size, int)
    for _, there in columns:
        order, first = _by_step(rows[there[rows]], steps)
        begins = np.flatnonzero(first)
        rank = np.arange(order.size) - np.repeat(begins, np.diff(np.append(begins, order.size)))
        turn[order] = np.maximum(turn[order], rank)
    found = [rows[turn[rows] == each] for each in range(turn[rows].max() + 1)]
    return found if len(found) <= MOST_TURNS else [rows]


def _by_step(rows: np.ndarray, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows in the order of their steps, and of each whether it is the first of its step. (M,), (M,)"""
    order = rows[np.argsort(steps[rows], kind="stable")]
    return order, np.diff(steps[order], prepend=-1.0) != 0


# ---------------------------------------------------------------- reading

MOST_NUMBERS = 10_000_000  # that the lab keeps of one file
MOST_RUNS = 1000  # lines of one chart: each becomes a run
_MOST_STEPS = 10**15
_COUNTS = frozenset((*COUNTERS, "updates", "num_tokens"))  # alone they are no metrics of a run
_RANGES = ("__min", "__max")  # how W&B heads the range of the points that it drew as one


def parse(name: str, content: bytes, label: str = "") -> list[Foreign]:
    """The runs in a metrics file: one, or one for each line of a W&B chart and each run whose rows it holds.

    Rows of one step are taken together. Raises:
        LabError: it is no such file, has no column that places its rows or no number that the lab knows, a number
            cannot be read, or there are more of them than the lab keeps.
    """
    kinds.check_size(name, len(content))
    return _in_words(name, content, label, MOST_NUMBERS, None)


def parse_own(name: str, content: bytes) -> Foreign:
    """The run in a CSV that the lab itself wrote from a parsed file. Such a CSV may be longer than the original, so
    there is no limit on its length. Raises LabError if it is damaged."""
    return _in_words(name, content, "", math.inf, OWN)[0]


def _in_words(name: str, content: bytes, label: str, most: float, layout: Layout | None) -> list[Foreign]:
    try:
        return _parsed(name, content, label, most, layout)
    except UnicodeDecodeError as error:
        line, byte = _not_utf8(content.removeprefix(codecs.BOM_UTF8))
        where = f"line {line} has the byte 0x{byte:02x}; " if line else ""
        raise LabError(f"{name} is not UTF-8: {where}save the file as UTF-8.") from error


def _not_utf8(content: bytes) -> tuple[int, int]:
    """The line and the byte at which this stops being UTF-8; 0 of a file that is compressed."""
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return (0, 0) if content.startswith(GZIP) else (content.count(b"\n", 0, error.start) + 1, content[error.start])
    return 0, 0


def _parsed(name: str, content: bytes, label: str, most: float, layout: Layout | None) -> list[Foreign]:
    table = kinds.table_of(name, content)
    stem = Path(name.removesuffix(".gz")).stem
    layout = layout or layout_of(_of_a_chart(column)[1] for column in table.header)
    if layout.value:
        table = replace(table, header=_with_value(name, stem, table.header, layout))
    sources = _sources(name, table.header, layout)
    taken = [source for source in sources if source.places.keys() - _COUNTS]
    _check(name, table, layout, sources, taken)
    read = _numbers(name, table, taken, most)
    found = [run for source in taken for run in _runs(name, stem, label, Builder(
        table.header, layout, source, read, _placed(name, table.header, layout, source, read)))]
    if not found:
        raise LabError(f"{name} has no number in the metrics that the lab knows: export the run again.")
    if len(found) > MOST_RUNS:
        raise LabError(f"{name} has {len(found):,} runs: give at most {MOST_RUNS:,} of them.")
    found[0].left.update(table.left | {
        table.header[place]: UNKNOWN for source in sources if source not in taken for place, title in source.columns
        if not _places(layout, title)})
    return [replace(run, notes=(*run.notes, *table.notes)) for run in found]


def _check(name: str, table: Table, layout: Layout, sources: Sequence[Source], taken: Sequence[Source]) -> None:
    """Raise LabError where nothing places the rows of a file, or none of its columns is known."""
    if not layout.row and not any(source.axes for source in sources):
        raise LabError(f"{name} has no step column, so its rows cannot be placed: name one column step, then import it "
                       "again.")
    if not taken:
        raise LabError(f"{name} has no metric that the lab knows among its {len(table.header)} columns: name one for "
                       "example reward, kl or loss, then import it again.")


def _numbers(name: str, table: Table, sources: Sequence[Source], most: float) -> Numbers:
    """The numbers of all columns that any of these runs needs, read at once."""
    axes = {place for source in sources for _, place in source.axes}
    wanted = {place for source in sources for place in source.places.values()}
    naming = {place for place, title in enumerate(table.header) if plain(title) in RUN_COLUMNS} - axes - wanted
    return numbers.read(name, table, sorted(axes | wanted), sorted(naming), axes - wanted, most)


# ---------------------------------------------------------------- its columns


def _with_value(name: str, stem: str, header: Sequence[str], layout: Layout) -> tuple[str, ...]:
    """The header of a file whose metric is named by the file: "run-PPO_1-tag-rollout_ep_rew_mean"."""
    tag = stem.rpartition("-tag-")[2] or stem
    for spelled in _spelled(tag):
        if known(layout, spelled):
            return tuple(spelled if plain(column) == layout.value else column for column in header)
    raise LabError(f"{name} has one metric, and its column is called {layout.value}: name it for example reward, kl or "
                   "loss, then import it again.")


def _spelled(tag: str) -> Iterator[str]:
    """The names that a tag may have had, since "/" stands as "_" in the name of a file: at no place, at one, at two."""
    places = [place for place, letter in enumerate(tag) if letter == "_"]
    yield tag
    for first in places:
        yield f"{tag[:first]}/{tag[first + 1:]}"
    for last, first in ((last, first) for last in places for first in places if first < last):
        yield f"{tag[:first]}/{tag[first + 1:last]}/{tag[last + 1:]}"


def _sources(name: str, header: Sequence[str], layout: Layout) -> list[Source]:
    """The runs by their columns. Of columns of one name each is that of another run, and shares with the first of them
    what places and counts rows. Columns without a run's name are of all runs of a chart; what the lab does not know of
    them stands with the first run. Raises LabError for too many."""
    found: dict[tuple[str, int], Source] = {}
    seen: Counter[tuple[str, str]] = Counter()
    for index, column in enumerate(header):
        of, quantity = _of_a_chart(column)
        copy = seen[of, plain(quantity)] if quantity else 0
        seen[of, plain(quantity)] += 1
        source = found.setdefault((of, copy), Source(of, copy, []))
        if of and plain(quantity).endswith(_RANGES):
            source.ranges.append(column)
        else:
            source.columns.append((index, quantity))
    if (lines := sum(bool(of) for of, _ in found) or len(found)) > MOST_RUNS:
        raise LabError(f"{name} has {lines:,} chart lines, and the lab imports each line as a run: give at most "
                       f"{MOST_RUNS:,} of them.")
    copies = Counter(of for of, _ in found)
    shared = found.pop(("", 0)).columns if ("", 0) in found and len(copies) > 1 else []
    counting = {of: [each for each in source.columns if _places(layout, each[1])]
                for (of, copy), source in found.items() if not copy}
    known_of_all = [each for each in shared if _places(layout, each[1]) or known(layout, each[1])]
    for number, ((of, copy), source) in enumerate(found.items()):
        own = {plain(title) for _, title in source.columns}
        first = [each for each in counting.get(of, []) if plain(each[1]) not in own] if copy else []
        source.columns, source.copies = [*(known_of_all if number else shared), *source.columns, *first], copies[of]
        _fill(source, layout)
    return list(found.values())


def _of_a_chart(column: str) -> tuple[str, str]:
    """("my run", "train/reward") of "my run - train/reward", as W&B heads the lines of a chart; else ("", column)."""
    of, dash, quantity = column.rpartition(" - ")
    return (of.strip(), quantity.strip()) if dash else ("", column)


def _places(layout: Layout, title: str) -> bool:
    """True if a column places or counts rows."""
    return any(is_axis(axis, title) for axis in layout.axes) or any(key in _COUNTS for key, _ in known(layout, title))


def _fill(source: Source, layout: Layout) -> None:
    """Find what places the rows of a run, and its metrics: of columns that can stand for one key the best."""
    source.axes = [(axis, place) for axis in layout.axes for place, title in source.columns if is_axis(axis, title)]
    best: dict[str, tuple[int, int]] = {}
    for place, title in source.columns:
        for key, rank in known(layout, title):
            best[key] = min(best.get(key, (rank, place)), (rank, place))
    source.places = {key: place for key, (_, place) in best.items()}


# ---------------------------------------------------------------- its rows


def _placed(name: str, header: Sequence[str], layout: Layout, source: Source, read: Numbers) -> Placed:
    """The column that places the rows: the first one that places all rows with a metric, otherwise the one that places
    most of them."""
    if layout.row:  # rows are counted from 1, and again where another header stands
        begins = np.flatnonzero(np.diff(read.parts, prepend=-1))
        return Placed(np.arange(1.0, read.parts.size + 1) - begins[read.parts])
    if not source.axes:
        raise LabError(f"{name} has no step column for {source.name}: name one column step, then import it again.")
    faults = {place: _fault(name, header[place], place, read) for _, place in source.axes}
    sound = [(axis, place) for axis, place in source.axes if not faults[place]]
    if not sound:
        raise LabError(faults[source.axes[0][1]])
    has = np.any([read.there[place] for place in source.metrics.values()], axis=0)
    axis, place = max(sound, key=lambda each: (has & np.isfinite(read.values[each[1]])).sum())
    steps = np.where(np.isfinite(read.values[place]), read.values[place], np.nan)
    if has.any() and not np.isfinite(steps[has]).any():
        raise LabError(f"{name} has no step in any row that has a metric: fill the column {header[place]}, then import "
                       "it again.")
    return Placed(steps, axis, place)


def _fault(name: str, title: str, place: int, read: Numbers) -> str:
    """Why a column cannot place rows; empty where it can."""
    if place in read.faults:
        return read.faults[place]
    steps = read.values[place]
    wrong = np.flatnonzero(np.isfinite(steps) & ((steps != np.floor(steps)) | (steps < 0) | (steps >= _MOST_STEPS)))
    if not wrong.size:
        return ""
    return (f"Line {read.lines[wrong[0]]} of {name} has the step {steps[wrong[0]]:.15g} in the column {title}: steps "
            f"are whole numbers from 0, below {_MOST_STEPS:.0e}.")


def _runs(name: str, stem: str, label: str, builder: Builder) -> list[Foreign]:
    """The runs in the rows of a source; none where these have no number at all. Runs that the user gave one label are
    seeds of one group; else the file's own names tell them apart."""
    read, source, steps = builder.read, builder.source, builder.placed.steps
    there = {place: read.there[place] for place in source.metrics.values()}
    placed = np.isfinite(steps)
    rows = np.flatnonzero(np.any([*there.values()], axis=0) & placed)
    real = [place for key, place in source.metrics.items() if key not in _COUNTS]
    if not any(there[place][rows].any() for place in real):
        return []
    left = {builder.header[place]: f"{lost:,} of its {has.sum():,} numbers: their rows have no step"
            for place, has in there.items() if (lost := int((has & ~placed).sum()))}
    names = {builder.header[place]: [texts[row] for row in rows] for place, texts in read.texts.items()}
    found = [Part(rows)] if builder.layout is OWN else split(
        rows, steps, [(read.values[place], there[place]) for place in real], read.lines, names)
    runs = []
    for number, part in enumerate(found, start=1):
        own = [] if label else [str(source.copy + 1) if source.copies > 1 else "",
                                part.name or (str(number) if len(found) > 1 else "")]
        notes = [f"Run {number} of {len(found)} in the file, told apart by {part.why}."] if len(found) > 1 else []
        if source.copies > 1:
            notes.append(f"Run {source.copy + 1} of {source.copies} in the file with the same column names.")
        runs.append(builder.run(" ".join(filter(None, [label or stem, source.name, *own])), part.rows, left, notes))
    return runs
