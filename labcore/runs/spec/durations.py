"""Durations as people read them."""

from __future__ import annotations


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
