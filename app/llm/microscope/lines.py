"""A line of arithmetic: a quantity of a token, how it is computed, with its numbers, and the result. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from app.theme import number

DIGITS = 4
CLOSE = 2e-3  # how far rounded inputs may lead from the recorded result


@dataclass(frozen=True)
class Line:
    """`sign` = `formula` = `worked` = `result`, `note`.

    `terms` are keys of `app.training.terms` that it is about, `source` the family of choices whose function computes
    it. `active` marks the branch that counts, `still` one that passes no gradient.
    """

    name: str
    sign: str = ""
    formula: str = ""
    worked: str = ""
    result: str = ""
    note: str = ""
    terms: tuple[str, ...] = ()
    source: str = ""
    active: bool = False
    still: bool = False


def plain(value: float | None) -> str:
    """A number of a token.

    >>> plain(-0.41234), plain(0.0), plain(2.1e-7), plain(None), plain(12345.678)
    ('−0.4123', '0', '2e−7', '–', '12,346')
    """
    return "–" if value is None else number(value, DIGITS)


def bracketed(value: float) -> str:
    """A number of a token after an arithmetic sign: a negative number in brackets.

    >>> bracketed(-0.5), bracketed(0.5)
    ('(−0.5000)', '0.5000')
    """
    return f"({plain(value)})" if plain(value).startswith("−") else plain(value)


def less(first: float, second: float) -> str:
    """A difference.

    >>> less(-0.5, -0.25)
    '−0.5000 − (−0.2500)'
    """
    return f"{plain(first)} − {bracketed(second)}"


def times(*values: float) -> str:
    """A product.

    >>> times(0.5, -2.0)
    '0.5000 × (−2.0000)'
    """
    return " × ".join([plain(values[0]), *map(bracketed, values[1:])])


def agrees(found: float, recorded: float | None) -> bool:
    """True if a result is the recorded one, up to the rounding of the file.

    >>> agrees(0.5, 0.50001), agrees(0.5, 0.6), agrees(0.5, None)
    (True, False, False)
    """
    return recorded is not None and abs(found - recorded) <= CLOSE * max(1.0, abs(recorded))
