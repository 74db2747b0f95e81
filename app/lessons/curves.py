"""The curves of a lesson: those of its runs, one chart per metric and each run the mean over its seeds; and the one
that the reader draws as a prediction, with how far it was from the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from app import theme
from app.compare.data import reader
from app.compare.lines import Lines, Look, lines_of
from app.components.draw_curve import draw_curve
from app.lab import lab
from labcore.analysis.compare.groups import Group
from labcore.analysis.lessons.course import Course, logged
from labcore.analysis.lessons.lesson import Lesson
from labcore.analysis.lessons.progress import Attempt
from labcore.catalog.metrics import METRICS
from labcore.catalog.panels import SMALL
from labcore.runs.store.rows import RunRow
from labcore.runs.traces import AXES

POINTS = 200
HEIGHTS = {1: 300, 2: 215}
LEAST = 180
DASHES = ("solid", "dot", "dash", "dashdot")
DRAWN = "Your curve"

Curve = Sequence[tuple[float, float]]


def payload(course: Course, curve: Curve = ()) -> dict[str, Any]:
    """The data of `compare_chart`. `curve` is the one that the reader drew, (share of the run, value) pairs."""
    lesson = course.lesson
    groups = [Group(setup.label, tuple(reader().traces(course.of(setup), lesson.charts)), (), {})
              for setup in lesson.setups]
    looks = [{"label": group.label, "short": group.label, "end": group.label, "note": note(group, course.of(setup)),
              "colour": [theme.LIGHT[place % 6], theme.DARK[place % 6]], "dash": DASHES[0], "bold": False}
             for place, (setup, group) in enumerate(zip(lesson.setups, groups, strict=True))]
    if curve:
        looks.append({"label": DRAWN, "short": DRAWN, "end": DRAWN, "note": "before the run", "bold": True,
                      "colour": ["#69727D", "#9AA4AF"], "dash": DASHES[1]})
    panels = [_panel(lesson, key, groups, curve) for key in lesson.charts]
    scene = f"lesson {lesson.name} {course.sweep}"
    return {"key": f"{scene} {len(looks)}", "scene": scene, "full": True, "main": True, "legend": True, "axis": "step",
            "groups": looks, "panels": panels}


def note(group: Group, rows: Sequence[RunRow]) -> str:
    """The number of seeds that a line is the mean of, and the step at which its runs finished before their last one."""
    begun = sum(trace.axes["step"].size > 0 for trace in group.traces)
    said = f"{begun} of {len(group.traces)} seeds" if begun < len(group.traces) else f"{begun} seeds"
    last = max((row.step for row in rows), default=0)
    early = rows and all(row.state == "finished" and row.step < row.spec.steps for row in rows)
    return f"{said}, finished at step {last:,} of {rows[0].spec.steps:,}" if early else said


def _panel(lesson: Lesson, key: str, groups: Sequence[Group], curve: Curve) -> dict[str, Any]:
    metric = METRICS[key]
    lines: Lines = {}
    for place, group in enumerate(groups):
        lines |= lines_of(group, place, Look(key, "step", traces=False, most=POINTS), {})
    if curve and lesson.drawn is not None and lesson.drawn.metric == key:
        lines["drawn"] = {"kind": "line", "group": len(groups), **_curve(lesson, curve)}
    ends = [f"{group.label} {theme.metric_text(metric, lines[f'{place}:line']['y'][-1], exact=True)}"
            for place, group in enumerate(groups) if f"{place}:line" in lines]
    alt = f"{metric.label} over {AXES['step']}: {', '.join(ends) or 'no values yet'}"
    return {"key": key, "title": metric.label, "symbol": theme.symbol(metric.symbol), "unit": metric.page_unit,
            "help": f"{metric.help} {metric.healthy}".strip().replace('"', "'"),
            "scale": "small rate" if key in SMALL else metric.scale,
            "digits": max(metric.digits, 3), "axis": AXES["step"], "names": True, "strip": "",
            "height": HEIGHTS.get(len(lesson.charts), LEAST), "alt": alt, "caption": lesson.title,
            "order": list(lines), "lines": lines, "marks": []}


def _curve(lesson: Lesson, curve: Curve) -> dict[str, list[float]]:
    """The drawn curve on the axis of steps."""
    steps = next(setup.spec.steps for setup in lesson.setups if lesson.drawn and setup.name == lesson.drawn.run)
    return {"x": [round(1 + share * (steps - 1), 3) for share, _ in curve], "y": [value for _, value in curve]}


# ---- the curve that the reader draws ---------------------------------------------------------------------------


def sheet(lesson: Lesson, curve: Curve, fixed: bool = False) -> Curve:
    """Show the drawing sheet, read-only if `fixed`, and return the curve drawn so far."""
    assert lesson.drawn is not None
    metric = METRICS[lesson.drawn.metric]
    setup = next(setup for setup in lesson.setups if setup.name == lesson.drawn.run)
    low, high = map(metric.on_page, (lesson.drawn.low, lesson.drawn.high))
    found = draw_curve(key=f"draw:{lesson.name}{':fixed' if fixed else ''}", low=low, high=high,
                       steps=setup.spec.steps, title=f"{metric.label} of {setup.label}", unit=metric.page_unit,
                       curve=[(at, metric.on_page(value)) for at, value in curve], fixed=fixed)
    return tuple((at, value / metric.on_page(1)) for at, value in found)


def beside(lesson: Lesson, found: Course, attempt: Attempt) -> str:
    """The distance of the drawn curve from the mean over seeds, in words."""
    if lesson.drawn is None or not attempt.curve:
        return ""
    apart, scale = distance(lesson, found, attempt), lesson.drawn.high - lesson.drawn.low
    metric, ends = METRICS[lesson.drawn.metric], (lesson.drawn.low, lesson.drawn.high)
    low, high = (f"{metric.on_page(end):g}{' %' * metric.share}" for end in ends)
    unit = "percentage points" if metric.share else metric.unit
    near = "close to" if apart < 0.1 * scale else "some way from" if apart < 0.25 * scale else "far from"
    far = theme.number(metric.on_page(apart), 2)
    return (f"Your curve is {near} the result: **{far}** {unit} apart on average, on an axis from {low} to {high}.")


def distance(lesson: Lesson, found: Course, attempt: Attempt) -> float:
    """Mean distance of the drawn curve to the mean over seeds, at the drawn places; in the metric's unit."""
    assert lesson.drawn is not None
    setup = next(setup for setup in lesson.setups if setup.name == lesson.drawn.run)
    drawn = np.array(attempt.curve)
    at = 1 + drawn[:, 0] * (setup.spec.steps - 1)
    seen = []
    for row in found.of(setup):
        steps, values = logged(lab().store.steps_after(row.id)).get(lesson.drawn.metric, (np.zeros(1), np.zeros(1)))
        seen.append(np.interp(at, steps, values))
    return float(np.abs(drawn[:, 1] - np.mean(seen, 0)).mean())
