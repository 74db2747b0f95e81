"""The small picture of a lesson: its recorded curves. Before the reader's verdict it shows only the first part of each
curve, and dotted lines for the possible outcomes.

Pure: HTML with SVG in it.
"""

from __future__ import annotations

import html
from base64 import b64encode
from collections.abc import Iterator, Sequence
from math import log

from app import theme
from labcore.analysis.lessons import recorded
from labcore.analysis.lessons.lesson import Lesson
from labcore.catalog.metrics import METRICS

WIDE, HIGH = 240, 116  # of the view box; the picture is as wide as there is room
LEFT, RIGHT, TOP, FLOOR = 5, 235, 6, 110
BEGINNING = 0.3  # largest share of the curves before the verdict: more would give the answer away
OPENING = 0.36  # share of the picture's width that the first part of the curves takes
WAYS = (0.94, 0.5, 0.06)  # heights at which the dotted lines end
PARTED = 0.1  # share of the spread at the end: beyond it the curves would give the answer away
SPREAD = 30  # largest value / smallest value: above it the axis is logarithmic

INK = {"light": "#1A1D21", "dark": "#E6E8EB"}

Line = tuple[str, int, Sequence[float]]  # its name, the place of its colour, its values


def picture(lesson: Lesson, whole: bool, ground: str) -> str:
    """The picture as HTML, for a light or a dark `ground`; `whole` once there is a verdict.

    An image, because Streamlit takes SVG out of HTML.
    """
    lines, colours = list(_lines(lesson, whole)), theme.DARK if ground == "dark" else theme.LIGHT
    labels = [METRICS[key].label for key in (lesson.picture if len(lesson.setups) == 1 else lesson.picture[:1])]
    heads = {label.partition(", ")[0] for label in labels}  # of "Gradient variance, baseline" and its like
    title = heads.pop() if len(heads) == 1 else ", ".join(labels)
    said = f"{title} over the steps of the runs" + ("" if whole else ": the beginning")
    share = 1.0 if whole else _beginning(lines)
    curves = "".join(_path(values, colours[place % 6], share, _bounds(lines)) for _, place, values in lines)
    ends = [_height(values[_count(values, share) - 1], _bounds(lines)) for _, _, values in lines]
    svg = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {HIGH}" width="{WIDE}" height="{HIGH}">'
           f'{_ground(INK[ground], [] if whole else ends)}{curves}</svg>')
    names = "".join(f'<span><i style="background:{colours[place % 6]}"></i>'
                    f'{html.escape(name.removeprefix(f"{title}, "))}</span>'
                    for name, place, _ in lines)
    return (f'<div class="rl-lesson"><small>{html.escape(title)}</small><img alt="{html.escape(said)}" '
            f'src="data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}">'
            f"<div>{names}</div></div>")


def _lines(lesson: Lesson, whole: bool) -> Iterator[Line]:
    """One curve per run; of a single run one curve per metric, without the metric that the reader predicts."""
    curves = recorded.recorded(lesson) or {}
    if len(lesson.setups) > 1:
        for place, setup in enumerate(lesson.setups):
            if values := curves.get(lesson.picture[0], {}).get(setup.name):
                yield setup.label, place, values
        return
    for place, key in enumerate(lesson.picture):
        hidden = not whole and lesson.drawn is not None and lesson.drawn.metric == key
        if not hidden and (values := curves.get(key, {}).get(lesson.setups[0].name)):
            yield METRICS[key].label, place, values


def _bounds(lines: Sequence[Line]) -> tuple[float, float, bool]:
    """(smallest, largest, whether the axis is logarithmic) of all values; the range is never empty."""
    every = [value for _, _, values in lines for value in values]
    low, high = min(every), max(every)
    by_factors = low > 0 and high > SPREAD * low
    if not by_factors and 0 < low < 0.5 * high:
        low = 0.0
    return (low, high, by_factors) if high > low else (low - 1, high + 1, False)


def _height(value: float, bounds: tuple[float, float, bool]) -> float:
    """The height of a value in the picture, from 0 to 1."""
    low, high, by_factors = bounds
    return log(value / low) / log(high / low) if by_factors else (value - low) / (high - low)


def _beginning(lines: Sequence[Line]) -> float:
    """The share of the curves that is drawn before the verdict: up to where they separate."""
    longest = max((len(values) for _, _, values in lines), default=0)
    heights = [[_height(values[place * len(values) // longest], _bounds(lines)) for _, _, values in lines]
               for place in range(longest)]
    apart = [max(each) - min(each) for each in heights]
    together = (place / longest for place, gap in enumerate(apart) if gap > PARTED * apart[-1])
    return min(BEGINNING, next(together, 1.0))


def _count(values: Sequence[float], share: float) -> int:
    """The number of values in a share of a curve: at least the first two."""
    return max(2, round(share * len(values)))


def _path(values: Sequence[float], colour: str, share: float, bounds: tuple[float, float, bool]) -> str:
    drawn = values[:_count(values, share)]
    step = (RIGHT - LEFT) * (OPENING if share < 1 else 1) / max(1, len(drawn) - 1)
    points = [(LEFT + i * step, _at(_height(value, bounds))) for i, value in enumerate(drawn)]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    x, y = points[-1]
    return (f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2.2" stroke-linejoin="round"/>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.4" fill="{colour}"/>')


def _at(height: float) -> float:
    """The y coordinate of a height from 0 to 1."""
    return FLOOR - height * (FLOOR - TOP - 6)


def _ground(ink: str, ends: Sequence[float]) -> str:
    """The floor, and dotted lines with a question mark from the mean height of `ends` to the possible outcomes."""
    floor = f'<path d="M{LEFT} {FLOOR}H{RIGHT}" stroke="{ink}" stroke-opacity=".35"/>'
    if not ends:
        return floor
    x, y, far = LEFT + (RIGHT - LEFT) * OPENING, _at((min(ends) + max(ends)) / 2), RIGHT - 34
    ways = "".join(f'<path d="M{x + 8:.1f} {y:.1f}C{x + 50:.1f} {y:.1f} {x + 60:.1f} {to:.1f} {far} {to:.1f}"/>'
                   for to in map(_at, WAYS))
    return (f'{floor}<g fill="none" stroke="{ink}" stroke-opacity=".38" stroke-width="1.6" stroke-linecap="round" '
            f'stroke-dasharray="1 5">{ways}</g><text x="{RIGHT - 14}" y="{_at(0.5) + 8:.1f}" font-family="sans-serif" '
            f'font-size="24" font-weight="600" text-anchor="middle" fill="{ink}" fill-opacity=".5">?</text>')
