"""Shares, sizes and times as people read them, in one format everywhere: pages, commands and errors."""

from __future__ import annotations

import math


def percent(share: float | None) -> str:
    """A share: whole percents, a digit more near 0 % and 100 %, and never 0 % or 100 % of what is not.

    >>> percent(0.312), percent(0.0312), percent(0.99996), percent(0.0004), percent(0.0), percent(None)
    ('31 %', '3.1 %', '>99.9 %', '<0.1 %', '0 %', '–')
    """
    if share is None:
        return "–"
    if 0 < share < 1e-3:
        return "<0.1 %"
    if 0.999 < share < 1:
        return ">99.9 %"
    return f"{100 * share:.{1 if 0 < share < 0.0995 or 0.9949 < share < 1 else 0}f} %"


def likelihood(logprob: float) -> str:
    """The probability of a log-prob (nats) in percent; never "0 %", however small.

    >>> likelihood(math.log(0.2)), likelihood(-1400.0), likelihood(0.0)
    ('20 %', '<0.1 %', '100 %')
    """
    return percent(math.exp(max(min(logprob, 0.0), math.log(1e-300))))


def size(count: float | None) -> str:
    """A number of bytes, in units of a thousand, with at most three digits.

    >>> size(0), size(1234), size(56_700_000), size(444_900), size(8_900_000_000), size(None)
    ('0 kB', '1.2 kB', '56.7 MB', '445 kB', '8.9 GB', '–')
    """
    if count is None:
        return "–"
    unit, of = next(((unit, of) for unit, of in (("GB", 1e9), ("MB", 1e6)) if count >= 0.9995 * of), ("kB", 1e3))
    return f"{count / of:.{0 if not count or count >= 99.95 * of else 1}f} {unit}"


def milliseconds(seconds: float | None) -> str:
    """A time that may be below a second.

    >>> milliseconds(0.1234), milliseconds(2.5), milliseconds(None)
    ('123 ms', '2.5 s', '–')
    """
    if seconds is None:
        return "–"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1e3 * seconds:.0f} ms"


def significant(value: float | None, digits: int = 3) -> str:
    """A number of any size with so many significant digits, as a column of a table has it; scientific below 1e-3.

    >>> significant(116151144.0), significant(110.4), significant(0.01234), significant(1051868.0, 2)
    ('116,000,000', '110', '0.0123', '1,100,000')
    >>> significant(-12.3456), significant(0.5), significant(2e-5), significant(0.0), significant(None)
    ('−12.3', '0.500', '2.00e−5', '0', '–')
    """
    if value is None:
        return "–"
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits}g}")
    size = abs(rounded)
    if size < 1e-3:
        text = f"{rounded:.{digits - 1}e}".replace("e-0", "e-")
    else:
        text = f"{rounded:,.{max(0, digits - 1 - math.floor(math.log10(size)))}f}"
    return text.replace("-", "−")


def duration(seconds: float) -> str:
    """
    >>> duration(0.84), duration(12.4), duration(75), duration(3700)
    ('0.8 s', '12 s', '1 min 15 s', '1 h 1 min')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"


def left(seconds: float) -> str:
    """The time left, in whole seconds, so that a countdown does not flicker.

    >>> left(0.2), left(7.4), left(75)
    ('1 s', '7 s', '1 min 15 s')
    """
    return f"{max(1, round(seconds))} s" if seconds < 10 else duration(seconds)
