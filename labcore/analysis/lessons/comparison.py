"""A simple comparison of a lesson's check as its parts, for a form: "last(a, "reward") > last(b, "reward") + 0.1"."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from labcore.analysis.lessons import expression
from labcore.errors import LabError

# The values of a run that the form offers: key -> (the function, its number of rows, words).
VALUES: dict[str, tuple[str, str, str]] = {
    "last": ("last", "", "the mean of the last 5 rows"), "last one": ("last", ", 1", "the last value"),
    "first": ("first", "", "the mean of the first 5 rows"), "first one": ("first", ", 1", "the first value"),
    "mean": ("mean", "", "the mean of all rows"), "max": ("max", "", "the highest value"),
    "min": ("min", "", "the lowest value")}
_NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_VALUE = r"(\w+)\((\w+), \"([^\"]+)\"(, 1)?\)"
_PATTERN = re.compile(rf"{_VALUE} ([<>]) (?:({_NUMBER})|{_VALUE}(?: ([+-]) ({_NUMBER}))?)")


@dataclass(frozen=True)
class Comparison:
    """`value` of `metric` of `run` is `more` than, or less than, that of the run `other` by over `by`; where `other` is
    empty, than the number `by`."""

    value: str
    metric: str
    run: str
    more: bool
    other: str
    by: float = 0.0

    def __str__(self) -> str:
        left, sign = self._of(self.run), ">" if self.more else "<"
        if not self.other:
            return f"{left} {sign} {self.by:.12g}"
        margin = f" {'+' if self.more == (self.by > 0) else '-'} {abs(self.by):.12g}" if self.by else ""
        return f"{left} {sign} {self._of(self.other)}{margin}"

    def _of(self, run: str) -> str:
        function, rows, _ = VALUES[self.value]
        return f'{function}({run}, "{self.metric}"{rows})'


def read(check: str) -> list[Comparison | str]:
    """The parts of a check that `and` joins: a simple comparison as its parts, any other as its text.

    >>> [one] = read('last(a, "reward") > last(b, "reward") + 0.1')
    >>> one.by, str(one)
    (0.1, 'last(a, "reward") > last(b, "reward") + 0.1')
    >>> read('2 * last(a, "reward") > 1')
    ['2 * last(a, "reward") > 1']
    """
    try:
        tree = ast.parse(check.strip(), mode="eval").body if len(check) <= expression.LONGEST else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    if tree is None:
        return [check]
    parts = tree.values if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And) else [tree]
    texts = [ast.unparse(part).replace("'", '"') for part in parts] if len(parts) > 1 else [check.strip()]
    return [_read(text) or text for text in texts]


def _read(text: str) -> Comparison | None:
    said = _PATTERN.fullmatch(text)
    if said is None:
        return None
    function, run, metric, one, sign, number, again, other, same, others_one, operator, margin = said.groups()
    key = next((key for key, (name, rows, _) in VALUES.items() if (name, rows) == (function, one or "")), None)
    if key is None:
        return None
    if number is not None:
        return Comparison(key, metric, run, sign == ">", "", float(number))
    if (again, same, others_one) != (function, metric, one):
        return None
    by = float(margin or 0) * (1 if (operator == "+") == (sign == ">") else -1)
    return Comparison(key, metric, run, sign == ">", other, by)


def written(comparisons: Sequence[Comparison | str]) -> str:
    """The check that joins them. Raises LabError where it is too long."""
    check = " and ".join(map(str, comparisons))
    if len(check) > expression.LONGEST:
        raise LabError(f"The check would have {len(check)} characters, and {expression.LONGEST} are the most: remove a "
                       "comparison.")
    return check
