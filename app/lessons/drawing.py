"""A prediction that is drawn by hand: the sheet, and how far the curve was from the result."""

from __future__ import annotations

import numpy as np

from app.components.draw_curve import draw_curve
from app.lab import lab
from app.lessons import curves
from app.theme import number
from labcore.analysis.lessons.course import Course, logged
from labcore.analysis.lessons.lesson import Lesson
from labcore.analysis.lessons.progress import Attempt
from labcore.catalog.metrics import METRICS


def show(lesson: Lesson, curve: curves.Curve, fixed: bool = False) -> curves.Curve:
    """The sheet, with what was drawn if it is fixed; the curve as it is drawn by now."""
    assert lesson.drawn is not None
    metric = METRICS[lesson.drawn.metric]
    setup = next(setup for setup in lesson.setups if setup.name == lesson.drawn.run)
    return draw_curve(key=f"draw:{lesson.name}{':fixed' if fixed else ''}", low=lesson.drawn.low,
                      high=lesson.drawn.high, steps=setup.spec.steps, title=f"{metric.label} of {setup.label}",
                      unit=metric.unit, curve=curve, fixed=fixed)


def beside(lesson: Lesson, found: Course, attempt: Attempt) -> str:
    """How far the drawn curve is from the mean over seeds, in words."""
    if lesson.drawn is None or not attempt.curve:
        return ""
    apart, scale = distance(lesson, found, attempt), lesson.drawn.high - lesson.drawn.low
    unit = METRICS[lesson.drawn.metric].unit
    near = "close to" if apart < 0.1 * scale else "some way from" if apart < 0.25 * scale else "far from"
    return (f"Your curve is {near} the result: **{number(apart, 2)}** {unit} apart on average, on an axis from "
            f"{lesson.drawn.low:g} to {lesson.drawn.high:g}.")


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
