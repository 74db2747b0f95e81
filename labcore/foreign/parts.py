"""Which rows of a table are one run: a file may hold several, and no number of one may replace one of another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

OFTEN = 0.5  # share of steps with two numbers above which the rows of a file are those of several runs, in turn
MOST_TURNS = 16  # runs that are told apart by their order: with more rows per step it is the step that tells nothing

Columns = Sequence[tuple[np.ndarray, np.ndarray]]  # (values, there) of each metric, (N,) each


@dataclass(frozen=True)
class Part:
    """The rows of one run in the order of the file, (M,), the name that the file gives it, and by what it was told
    apart from the others."""

    rows: np.ndarray
    name: str = ""
    why: str = ""


def split(rows: np.ndarray, steps: np.ndarray, columns: Columns, lines: np.ndarray,
          names: Mapping[str, Sequence[str]]) -> list[Part]:
    """The runs in M of N rows, which all have a step. `steps` and `lines` are (N,); `names` are columns of M texts that
    may name the run of a row.

    Rows in disorder are one run: only where a step has a number twice are there several. These are told apart by a
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
