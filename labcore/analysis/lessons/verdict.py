"""Judge a check by its runs: it holds, it does not hold, or it is too close to call with these seeds.

Each comparison a > b is judged by the difference a − b of each seed, since both sides may read the same run: its mean
with the interval of `labcore.analysis.estimate`, which for one number per seed is Student's. If the interval lies on
one side of zero the comparison holds or fails; if it contains zero, one more seed may decide. For == the sides must be
equal in every seed; for != one seed that differs is enough. Left out: a correction for several comparisons in one
check.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from math import exp, inf, log
from typing import Literal

import numpy as np

from labcore.analysis.estimate import FEWEST, Estimate, estimate, within
from labcore.analysis.lessons.expression import COMPARED, Check, Runs, comparison, comparisons, number, read

Says = Literal["holds", "fails", "close"]

FAR = 1_000  # a factor beyond it, or below its inverse, is not written out
EQUAL = 1e-9  # relative difference of numbers that count as equal
_OF_TRUTH: dict[bool | None, Says] = {True: "holds", False: "fails", None: "close"}


@dataclass(frozen=True)
class Compared:
    """One comparison: its sides for each seed, and their mean difference with its interval (None with one seed).

    `read` are the numbers that it reads from the runs: the text of each number, and its value for each seed.
    `logarithms`: both sides are logarithms, so their difference is the logarithm of a factor.
    """

    text: str
    read: tuple[tuple[str, tuple[float, ...]], ...]
    logarithms: bool
    left: tuple[float, ...]
    right: tuple[float, ...]
    mean: float
    low: float | None
    high: float | None
    says: Says


@dataclass(frozen=True)
class Verdict:
    """The verdict of a check over so many seeds, and of each of its comparisons."""

    says: Says
    parts: tuple[Compared, ...]
    seeds: int


def margin_text(part: Compared, shown: Callable[[float], str]) -> str:
    """The mean difference with its interval, "0.21 (0.15 to 0.27)"; where seeds make no difference there is none.

    Of two logarithms it is a factor: "× 1.4 (1.1 to over 1,000)". `shown` writes a number.
    """
    middle = f"× {_factor(part.mean, shown)}" if part.logarithms else shown(part.mean)
    if part.low is None or part.high is None:
        return f"{middle} (fewer than {FEWEST} seeds: no interval)"
    low, high = (_factor(each, shown) if part.logarithms else shown(each) for each in (part.low, part.high))
    if low != high:
        return f"{middle} ({low} to {high})"
    if part.logarithms and part.low != part.high and abs(part.low) > log(FAR):
        return middle  # the whole interval is beyond it too
    return f"{middle} (all seeds agree)"


def _factor(logarithm: float, shown: Callable[[float], str]) -> str:
    if abs(logarithm) > log(FAR):
        return f"over {FAR:,}" if logarithm > 0 else f"under {1 / FAR}"
    return shown(exp(logarithm))


def judge(check: Check, runs: Runs) -> Verdict:
    """The verdict of a check on these runs, each with the same seeds. Raises LabError if a run does not log what the
    check reads, or a number is not finite."""
    seeds = min(len(each) for each in runs.values())
    parts: list[Compared] = []
    truth = _truth(check.tree, runs, seeds, parts)
    return Verdict(_OF_TRUTH[truth], tuple(parts), seeds)


def _truth(node: ast.expr, runs: Runs, seeds: int, parts: list[Compared]) -> bool | None:
    """True, False or None for not known, as Kleene's logic joins them."""
    if isinstance(node, ast.BoolOp):
        found = [_truth(part, runs, seeds, parts) for part in node.values]
        decisive = isinstance(node.op, ast.Or)
        return decisive if decisive in found else None if None in found else not decisive
    if isinstance(node, ast.UnaryOp):
        inner = _truth(node.operand, runs, seeds, parts)
        return None if inner is None else not inner
    assert isinstance(node, ast.Compare)
    known = []
    for each in comparisons(node):
        parts.append(_compared(*each, runs, seeds))
        known.append({"holds": True, "fails": False, "close": None}[parts[-1].says])
    return False if False in known else None if None in known else True


def _compared(left: ast.expr, operator: ast.cmpop, right: ast.expr, runs: Runs, seeds: int) -> Compared:
    a, b = number(left, runs, seeds), number(right, runs, seeds)
    sign = COMPARED[type(operator)]
    found = estimate({"a − b": a - b}, {"a − b": 1.0})
    truth = _equal(sign, a, b) if sign in "=≠" else _ordered(sign, found)
    off = tuple((ast.unparse(call), _plain(number(call, runs, seeds))) for call in (*read(left), *read(right)))
    return Compared(comparison(left, operator, right), off, _is_log(left) and _is_log(right), _plain(a), _plain(b),
                    found.mean, found.low, found.high, _OF_TRUTH[truth])


def _plain(values: np.ndarray) -> tuple[float, ...]:
    return tuple(map(float, values))


def _is_log(side: ast.expr) -> bool:
    return isinstance(side, ast.Call) and isinstance(side.func, ast.Name) and side.func.id == "log"


def _equal(sign: str, a: np.ndarray, b: np.ndarray) -> bool | None:
    """True if a = b in every seed; for ≠, if a seed differs."""
    same = bool((abs(a - b) <= EQUAL * np.maximum(1, np.maximum(abs(a), abs(b)))).all())
    return None if a.size < FEWEST else same == (sign == "=")


def _ordered(sign: str, difference: Estimate) -> bool | None:
    """The truth of a `sign` b by the interval of a − b; a ≥ b means that a < b is false."""
    if sign in "≤≥":
        opposite = _ordered("<" if sign == "≥" else ">", difference)
        return None if opposite is None else not opposite
    return within(difference, 0, inf) if sign == ">" else within(difference, -inf, 0)
