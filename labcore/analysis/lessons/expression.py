"""The language of a lesson's check: arithmetic, comparisons, and/or/not, and functions of a run's metrics.

    last(free, "kl") > 2 * last(tied, "kl") and max(once, "clip_frac/region") == 0

Python's own parser reads it, and only what is listed here is let through; nothing is ever executed as Python. A value
is (S,): one number per seed. Left out: powers, attributes, indexing, names that are no run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np

from labcore.catalog.knob import suggestion
from labcore.catalog.metrics import METRICS
from labcore.errors import LabError, quoted

LONGEST = 600  # characters of a check
DEEPEST = 24  # operations within each other
FEW = 5  # rows that `first` and `last` are the mean of, where nothing else is said
MOST_ROWS = 100_000
LARGEST = 1e12  # a number that may be written

Column = tuple[np.ndarray, np.ndarray]  # steps and values of the rows that have a metric, (T,) each
Logged = Mapping[str, Column]  # by metric
Runs = Mapping[str, Sequence[Logged]]  # by a run's name in the lesson: one entry per seed, seeds in the same order


def _slope(steps: np.ndarray, values: np.ndarray) -> float:
    """Least-squares slope, per step; 0 of a single row."""
    apart = steps - steps.mean()
    return float(apart @ values / (apart @ apart)) if steps.size > 1 else 0.0


def _at(steps: np.ndarray, values: np.ndarray, step: float) -> float:
    """The value at a step; before the first row the first."""
    return float(values[max(0, int(np.searchsorted(steps, step, side="right")) - 1)])


# Of one run and one metric, and where it is given a whole number: steps (T,), values (T,), number -> float
OF_RUN: dict[str, tuple[Callable[..., float], float | None, str]] = {
    "first": (lambda steps, values, rows: float(values[:int(rows)].mean()), FEW, "mean of the first 5 rows, or of N"),
    "last": (lambda steps, values, rows: float(values[-int(rows):].mean()), FEW, "mean of the last 5 rows, or of N"),
    "mean": (lambda steps, values, _: float(values.mean()), 0, "mean of all rows"),
    "max": (lambda steps, values, _: float(values.max()), 0, "largest row"),
    "min": (lambda steps, values, _: float(values.min()), 0, "smallest row"),
    "slope": (lambda steps, values, _: _slope(steps, values), 0, "slope of the line through all rows, per step"),
    "at": (_at, None, "value at step N"),
}
COUNTED = ("first", "last", "at")  # functions that take a number
# Over the seeds: (S,) -> one number, the same for every seed.
OVER_SEEDS: dict[str, Callable[[np.ndarray], float]] = {
    "highest": lambda values: float(values.max()), "lowest": lambda values: float(values.min()),
    "average": lambda values: float(values.mean()),
}
PLAIN: dict[str, Callable[[Any], Any]] = {"abs": np.abs, "log": np.log}
FUNCTIONS = (*OF_RUN, *OVER_SEEDS, *PLAIN)
ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply, ast.Div: np.divide}
COMPARED: dict[type, str] = {ast.Lt: "<", ast.LtE: "≤", ast.Gt: ">", ast.GtE: "≥", ast.Eq: "=", ast.NotEq: "≠"}


@dataclass(frozen=True)
class Check:
    """A check that was found to be sound: its text, its tree, the metrics it reads of each run, and the text of each of
    its comparisons, in the order in which they are judged."""

    text: str
    tree: ast.expr
    reads: tuple[tuple[str, str], ...]
    comparisons: tuple[str, ...]


def parse(text: str, runs: Sequence[str]) -> Check:
    """The check in `text` over the runs of these names. Raises LabError if it is too long, is no expression of this
    language, or names a run, metric or function that is not there. The message names the fault and its place."""
    if len(text) > LONGEST:
        raise LabError(f"the check has {len(text)} characters: use at most {LONGEST}.")
    text = " ".join(text.split())  # it may stand on several lines
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = f" at character {error.offset}" if isinstance(error, SyntaxError) and error.offset else ""
        raise LabError(f"the check cannot be read{where}: write for example last(run, \"reward\") > 0.5.") from error
    reader = _Reader(tuple(runs))
    reader.truth(tree, 0)
    return Check(text, tree, tuple(dict.fromkeys(reader.reads)), tuple(reader.comparisons))


def comparisons(node: ast.Compare) -> list[tuple[ast.expr, ast.cmpop, ast.expr]]:
    """The pairs that a comparison such as a < b < c compares: a with b, b with c."""
    sides = [node.left, *node.comparators]
    return list(zip(sides, node.ops, sides[1:], strict=False))


def comparison(left: ast.expr, operator: ast.cmpop, right: ast.expr) -> str:
    """Its text."""
    return f"{ast.unparse(left)} {COMPARED[type(operator)]} {ast.unparse(right)}"


def read(node: ast.expr) -> list[ast.Call]:
    """The numbers of runs, or over the seeds, that one side of a comparison reads, in order."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in (*OF_RUN, *OVER_SEEDS):
        return [node]
    return [call for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr) for call in read(part)]


class _Reader:
    """Looks at every node once, and lets through only what the language has."""

    def __init__(self, runs: tuple[str, ...]) -> None:
        self.runs, self.reads, self.comparisons = runs, list[tuple[str, str]](), list[str]()

    def truth(self, node: ast.expr, depth: int) -> None:
        """Check a truth value: a comparison, or several with and, or, not."""
        _not_too_deep(depth)
        if isinstance(node, ast.BoolOp):
            for part in node.values:
                self.truth(part, depth + 1)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self.truth(node.operand, depth + 1)
        elif isinstance(node, ast.Compare):
            if wrong := [each for each in node.ops if type(each) not in COMPARED]:
                raise LabError(f"the check cannot say {_named(wrong[0])}: compare numbers by <, <=, >, >=, == or !=.")
            for part in (node.left, *node.comparators):
                self.number(part, depth + 1)
            self.comparisons += [comparison(*each) for each in comparisons(node)]
        else:
            raise LabError(f"{_said(node)} is neither true nor false: compare it with a number, for example "
                           "last(run, \"reward\") > 0.5.")

    def number(self, node: ast.expr, depth: int) -> None:
        """Check a number for each seed."""
        _not_too_deep(depth)
        if isinstance(node, ast.Constant):
            _literal(node)
        elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            self.number(node.left, depth + 1)
            self.number(node.right, depth + 1)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            self.number(node.operand, depth + 1)
        elif isinstance(node, ast.Call):
            self._call(node, depth)
        else:
            raise LabError(f"{_said(node)} is not a number here: use numbers, + - * /, and functions such as "
                           "last(run, \"reward\").")

    def _call(self, node: ast.Call, depth: int) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in FUNCTIONS:
            raise LabError(f"there is no function {_said(node.func)}: {suggestion(name, FUNCTIONS)}")
        if node.keywords:
            raise LabError(f"{name} takes no named arguments: write {_form(name)}.")
        if name not in OF_RUN:
            if len(node.args) != 1:
                raise LabError(f"{name} takes one number: write {_form(name)}.")
            self.number(node.args[0], depth + 1)
            return
        _, default, _ = OF_RUN[name]
        counts = (2, 3) if name in COUNTED and default is not None else (3,) if default is None else (2,)
        if len(node.args) not in counts:
            raise LabError(f"{_said(node)} has {len(node.args)} arguments: write {_form(name)}.")
        self._metric_of(name, *node.args[:2])
        if len(node.args) == 3:
            _whole(name, node.args[2])

    def _metric_of(self, name: str, run: ast.expr, metric: ast.expr) -> None:
        if not isinstance(run, ast.Name) or run.id not in self.runs:
            raise LabError(f"{_said(run)} is not a run of this lesson: use {' or '.join(self.runs)}.")
        key = metric.value if isinstance(metric, ast.Constant) else None
        if not isinstance(key, str):
            raise LabError(f"{_said(metric)} is not a metric: write its name in quotes, as in {_form(name)}.")
        if key not in METRICS:
            raise LabError(no_metric(key))
        self.reads.append((run.id, key))


def no_metric(key: str) -> str:
    """The sentence about a metric that does not exist."""
    near = get_close_matches(key, METRICS, n=1)
    return f"there is no metric {quoted(key)}: " + (f"did you mean {near[0]!r}?" if near else
                                                    "the page Help has them all.")


def _literal(node: ast.Constant) -> None:
    value = node.value
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
        raise LabError(f"{_said(node)} is not a number that can be compared: use one up to {LARGEST:g}.")


def _whole(name: str, node: ast.expr) -> None:
    value = node.value if isinstance(node, ast.Constant) else None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_ROWS:
        raise LabError(f"{_said(node)} does not fit: {name} takes a whole number from 1 to {MOST_ROWS}.")


def _form(name: str) -> str:
    """The form of a function's call, for error messages."""
    if name not in OF_RUN:
        return f'{name}(last(run, "reward"))'
    return f'{name}(run, "reward", 20)' if OF_RUN[name][1] is None else f'{name}(run, "reward")'


def _not_too_deep(depth: int) -> None:
    if depth > DEEPEST:
        raise LabError(f"the check is more than {DEEPEST} operations deep: write it with fewer brackets.")


def _said(node: ast.AST, most: int = 60) -> str:
    """A part of the check as it was written."""
    try:
        text = ast.unparse(node)
    except (RecursionError, ValueError):  # deeper than Python can write, or a number longer than it may
        text = "a part of the check"
    return text if len(text) <= most else f"{text[:most]}…"


def _named(operator: ast.cmpop) -> str:
    return {"In": "in", "NotIn": "not in", "Is": "is", "IsNot": "is not"}.get(type(operator).__name__, "that")


# ---- values ----------------------------------------------------------------------------------------------------


def number(node: ast.expr, runs: Runs, seeds: int) -> np.ndarray:
    """The value of a sound check's number for each seed: (S,). Raises LabError if a run does not log the metric, or the
    result is not finite."""
    with np.errstate(all="ignore"):
        found = np.broadcast_to(np.asarray(_number(node, runs), float), seeds)
    if not np.isfinite(found).all():
        raise LabError(f"{_said(node)} is not finite in these runs: it may be a division by zero.")
    return found


def _number(node: ast.expr, runs: Runs) -> Any:
    if isinstance(node, ast.Constant):
        assert isinstance(node.value, int | float), "`_literal`"
        return float(node.value)
    if isinstance(node, ast.BinOp):
        return ARITHMETIC[type(node.op)](_number(node.left, runs), _number(node.right, runs))
    if isinstance(node, ast.UnaryOp):
        value = _number(node.operand, runs)
        return -value if isinstance(node.op, ast.USub) else value
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    name = node.func.id
    if name in OVER_SEEDS:
        return OVER_SEEDS[name](np.atleast_1d(_number(node.args[0], runs)))
    if name in PLAIN:
        return PLAIN[name](_number(node.args[0], runs))
    return _of_run(name, node.args, runs)


def _of_run(name: str, arguments: Sequence[ast.expr], runs: Runs) -> np.ndarray:
    run, (metric, *more) = arguments[0], [node.value for node in arguments if isinstance(node, ast.Constant)]
    assert isinstance(run, ast.Name) and isinstance(metric, str), "`_metric_of`"
    function, default, _ = OF_RUN[name]
    count = more[0] if more else default
    values = []
    for logged in runs[run.id]:
        steps, column = logged.get(metric, (np.empty(0), np.empty(0)))
        if not column.size:
            raise LabError(f"The run {run.id} logged no {METRICS[metric].inline} ({metric}).")
        values.append(function(steps, column, count))
    return np.array(values)
