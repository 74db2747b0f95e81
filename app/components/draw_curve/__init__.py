"""A sheet on which a curve is drawn by hand: a few points over the steps of a run, moved by pointer or keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.components.component import Component

SHEET = Component(Path(__file__).parent)
POINTS = 9


def draw_curve(key: str, *, low: float, high: float, steps: int, title: str, unit: str,
               curve: Sequence[tuple[float, float]] = (), fixed: bool = False) -> tuple[tuple[float, float], ...]:
    """Mount the sheet. Returns the curve drawn so far: (share of the run, value) pairs, empty before anything is drawn.

    If it is `fixed`, it shows `curve` instead. Values from the browser are limited to the axis.
    """
    found = SHEET(key=key, data={"low": low, "high": high, "steps": steps, "title": title, "unit": unit,
                                 "points": POINTS, "curve": [list(point) for point in curve], "fixed": fixed},
                  on_curve_change=lambda: None)
    return tuple(curve) if fixed else sound(found.curve, low, high)


def sound(said: Any, low: float, high: float) -> tuple[tuple[float, float], ...]:
    """The values that the browser sent as a curve on the axis; none where they are no such values.

    >>> sound([0, 0.5, 9], 0, 1)
    ((0.0, 0.0), (0.5, 0.5), (1.0, 1.0))
    """
    if not isinstance(said, list) or len(said) < 2 or not all(isinstance(each, int | float) for each in said):
        return ()
    return tuple((place / (len(said) - 1), float(min(max(value, low), high))) for place, value in enumerate(said))
