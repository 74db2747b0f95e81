"""The arithmetic that a choice declares, with the numbers of a token in it. Pure.

The result is computed from the declared words, so it always matches the arithmetic on the page. If the result differs
from the number that the run recorded, or needs a number that the run did not record, only the recorded number is shown.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

from app.llm.microscope.lines import Line, agrees, bracketed, plain
from labcore.catalog.amounts import percent
from labcore.catalog.choice import Choice
from labcore.catalog.knob import Value
from labcore.catalog.worked import Numbers, Unrecorded, Worked

LARGEST = 50.0  # of an exponent
_SPOKEN = {"×": "*", "−": "-", "½": "0.5", "²": "**2", "log σ(": "log_sigma(", "σ(": "sigma("}
_BINARY: Mapping[type, Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: operator.pow}


def _exp(power: float) -> float:
    return math.exp(min(power, LARGEST))


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _log_sigma(value: float) -> float:
    return -(max(-value, 0.0) + math.log1p(math.exp(-abs(value))))


FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "exp": _exp, "log": _log, "min": min, "max": max, "log_sigma": _log_sigma,
    "sigma": lambda value: math.exp(_log_sigma(value))}


class _Shown(float):
    def __format__(self, how: str) -> str:
        if how == "g":
            return format(float(self), "g")
        return {"b": bracketed, "%": percent}.get(how, plain)(float(self))


def numbers(knobs: Mapping[str, Value], **recorded: float | None) -> Numbers:
    """The numbers that were recorded of a token, and those of the run's knobs."""
    found = {key: float(value) for key, value in knobs.items() if isinstance(value, int | float)}
    return Numbers(found | {key: value for key, value in recorded.items() if value is not None})


def filled(words: str, of: Numbers) -> str:
    """Words with their numbers: "{ratio} × {advantage:b}" as "1.2000 × (−0.5000)"."""
    names = {name for name, _ in _places(words)}
    return words.format_map({name: _Shown(of[name]) for name in names})


def worth(words: str, of: Numbers) -> float:
    """The result of the arithmetic.

    >>> worth("½ × {apart:b}² − 4/{tau:g} × σ(0)", numbers({}, apart=-2.0, tau=2.0))
    1.0

    Raises:
        Unrecorded: a number is not there.
    """
    return _value(_parsed(words), of)


def _places(words: str) -> list[tuple[str, str]]:
    return re.findall(r"\{(\w+)(:[^}]*)?\}", words)


@cache
def _parsed(words: str) -> ast.expr:
    for said, written in _SPOKEN.items():
        words = words.replace(said, written)
    return ast.parse(re.sub(r"\{(\w+)[^}]*\}", r"(\1)", words), mode="eval").body


def _value(node: ast.AST, of: Numbers) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.Name(id=name):
            return of[name]
        case ast.UnaryOp(op=ast.USub()):
            return -_value(node.operand, of)
        case ast.BinOp() if type(node.op) in _BINARY:
            return _BINARY[type(node.op)](_value(node.left, of), _value(node.right, of))
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in FUNCTIONS:
            return FUNCTIONS[name](*(_value(argument, of) for argument in arguments))
    raise ValueError(f"The declared arithmetic has what cannot be computed: {ast.unparse(node)}")


def _computed(choice: Choice, of: Numbers) -> tuple[Worked, Numbers, float] | None:
    """The arithmetic of a choice, all its numbers and its result; None where it declares none, a number was not
    recorded, or the result is no number, as where a recorded ratio was rounded to 0."""
    try:
        if choice.worked is None:
            return None
        worked = choice.worked(of)
        known = Numbers({**of, **worked.also})
        for branch in worked.branches:
            known[branch.name] = worth(branch.numbers, known)
        result = worth(worked.numbers or worked.formula, known)
        return (worked, known, result) if math.isfinite(result) else None
    except (Unrecorded, ArithmeticError):
        return None


def number(choice: Choice, of: Numbers) -> float | None:
    """The number of a choice by its arithmetic; None where that cannot be computed."""
    found = _computed(choice, of)
    return found[2] if found else None


def lines(choice: Choice, of: Numbers, recorded: float | None, line: Line) -> list[Line]:
    """`line` with the arithmetic of `choice` and its result, after the branches on the way; the recorded number with
    the choice's label where the arithmetic does not give it."""
    found = _computed(choice, of)
    if found is None or not (recorded is None or agrees(found[2], recorded)):
        return [replace(line, result=plain(recorded), note=line.note or choice.label)]
    worked, known, result = found
    branches = [Line(each.name, each.sign, filled(each.formula, known), filled(each.numbers, known),
                     plain(known[each.name]), each.note, each.terms, active=each.active, still=each.still)
                for each in worked.branches]
    note = " · ".join(filter(None, (filled(worked.note, known), line.note)))
    return [*branches, replace(line, formula=filled(worked.formula, known), worked=filled(worked.numbers, known),
                               result=plain(result if recorded is None else recorded), note=note)]


def names(choice: Choice) -> frozenset[str]:
    """The numbers that the arithmetic of a choice is about, where it does not depend on them."""
    try:
        found = _places(choice.worked(Numbers()).numbers) if choice.worked else []
        return frozenset(name for name, _ in found)
    except Unrecorded:
        return frozenset()
