"""The view "Reward and KL": the reward of each group against its distance from the reference."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from app import theme
from app.compare import wording
from app.compare.curves import Sent, family_version, resync, sent, version
from app.compare.data import Chosen, look_of
from app.compare.lines import Lines, digits
from app.compare.verdict import at_the_same
from app.components.compare_chart import compare_chart
from labcore.analysis.compare import frontier
from labcore.analysis.compare.best import Standing
from labcore.analysis.compare.frontier import Point
from labcore.analysis.compare.statistics import LAST
from labcore.analysis.compare.table import Group
from labcore.catalog.metrics import METRICS

COST = "kl"
SMOOTHING = 0.9  # of the ways: as the rows come, there is nothing to see
MOST = 200  # points of a way


def fits(chosen: Chosen) -> bool:
    """Whether any of the runs says how far it is from a reference."""
    return any(COST in logged for logged in chosen.logged.values())


def earned(chosen: Chosen) -> str:
    """What is set against the KL: the metric that is looked at, if more of it is better."""
    return chosen.metric if METRICS[chosen.metric].better == "higher" else "reward"


def show(chosen: Chosen, stand: Standing | None, full: bool) -> None:
    """The plane, and its groups as numbers beside it."""
    reward = earned(chosen)
    chosen = at_the_same(chosen.with_metrics([chosen.metric, reward, COST]), stand)
    points, at = frontier.points(chosen.groups, reward, COST), wording.way(stand) if stand else "at the end"
    left, right = st.columns([1.9, 1], gap="medium")
    with left:
        compare_chart(payload(chosen, reward, points, full), "compare_plane", on_resync=resync)
    if points:
        right.html(f"{wording.CSS}{listed(chosen, reward, points)}")
    dotted = ". Dotted: the Pareto front, groups that no other group exceeds in both" if has_front(points) else ""
    right.caption("Up and to the left is better: more reward for less KL. Thin lines: the smoothed path of each run. "
                  f"Small markers: each seed {at}, as the mean of its last {LAST} steps. Large markers: the mean over "
                  f"a group's seeds{dotted}." if points else
                  "This chart appears once the runs have logged a reward and a KL to the reference.")


def has_front(points: Sequence[Point]) -> bool:
    """Whether there is a line to draw: a front of one group is a point."""
    return sum(point.on_front for point in points) > 1


@dataclass(frozen=True)
class Plane:
    """How the plane is drawn: with the `ways` of the runs or only where they ended, with a legend or not.

    `names` are what groups are called where not as in the legend, by label; `open` says, as HTML, why a group's mean is
    drawn as an open marker.
    """

    ways: bool = True
    legend: bool = True
    height: int = 470
    names: Mapping[str, str] = field(default_factory=dict)
    open: Mapping[str, str] = field(default_factory=dict)


PLANE = Plane()


def payload(chosen: Chosen, reward: str, points: list[Point], full: bool, plane: Plane = PLANE) -> dict[str, Any]:
    """What `compare_chart` draws: one panel."""
    metric, cost = METRICS[reward], METRICS[COST]
    lines = lines_of(chosen, reward, points, sent(), plane)
    scene = "|".join(",".join(trace.run for trace in group.traces) for group in chosen.groups)
    said = ", ".join(f"{point.label} {theme.number(point.reward, 3)} at {theme.number(point.cost, 4)} {cost.unit}"
                     for point in points)
    key = f"{'plane' if plane.ways else 'front'} {reward}"
    panel = {"key": key, "title": f"{metric.label} against KL", "symbol": "", "unit": "", "bare": not plane.legend,
             "help": "KL to the reference", "scale": "linear", "digits": max(metric.digits, 3), "plane": True,
             "axis": cost.axis, "yTitle": metric.axis, "height": plane.height,
             "names": False, "strip": "", "alt": f"{metric.label} against KL: {said or 'no values yet'}", "marks": [],
             "caption": f"{'Thin: paths, smoothed; large' if plane.ways else 'Large'}: means over seeds"
                        f"{'; dotted: the Pareto front' * has_front(points)}",
             "range": {axis: room(lines, axis) for axis in "xy"}, "order": list(lines),
             "lines": sent().changed(key, lines, full)}
    groups = [look | {"short": plane.names.get(look["label"], look["short"])} for look in look_of(chosen)]
    return {"key": f"{scene} {key}", "scene": scene if plane.legend else f"{scene} {key}", "full": full, "main": True,
            "legend": plane.legend, "axis": "plane", "groups": groups, "panels": [panel]}


def lines_of(chosen: Chosen, reward: str, points: list[Point], kept: Sent, plane: Plane = PLANE) -> Lines:
    """The ways of the runs, their ends, the groups' means, and the front through these."""
    lines: Lines = {}
    ended = {point.label: point for point in points}
    for place, group in enumerate(chosen.groups):
        if point := ended.get(group.label):
            why = plane.open.get(group.label, "")
            lines |= kept.lines((place, reward, plane.ways), (version(group), family_version(chosen, group), why),
                                partial(_group, group, place, point, reward, plane.ways, why, chosen.titles))
    if has_front(points):
        front = sorted((point for point in points if point.on_front), key=lambda point: point.cost)
        x, y = [point.cost for point in front], [point.reward for point in front]
        lines |= kept.lines(("front", reward), (x, y), lambda: {"front": {"kind": "front", "x": x, "y": y}})
    return lines


def room(lines: Lines, axis: str) -> list[float] | None:
    """What an axis shows: all that is drawn, with a little room for the names; the cost from 0 on.

    >>> room({"0:path": {"x": [0.2, 1.0]}, "0:ends": {"x": [0.8]}}, "x")
    [-0.02, 1.08]
    """
    values = [value for line in lines.values() for value in line[axis] if np.isfinite(value)]
    if not values:
        return None
    low, high = min(values), max(values)
    from_zero = axis == "x" and low >= 0
    low = 0.0 if from_zero else low
    span = high - low or abs(high) or 1.0
    return [low - (0.02 if from_zero else 0.08) * span, high + 0.08 * span]


def _group(group: Group, place: int, point: Point, reward: str, ways: bool, why: str,
           titles: Mapping[str, str]) -> Lines:
    lines: Lines = {}
    for trace in group.traces if ways else ():
        x, y = frontier.path(trace, reward, COST, SMOOTHING, MOST)
        if x.size:  # smoothing lags behind: the way is led on to where the run ended
            cost, value = next(end[1:] for end in point.runs if end[0] == trace.run)
            lines[f"{place}:path:{trace.run}"] = {"kind": "path", "group": place, "x": digits(np.append(x, cost)),
                                                  "y": digits(np.append(y, value))}

    def words(name: str, cost: float, value: float) -> str:
        return f"{html.escape(name)}: {theme.number(value, 3)} at {theme.number(cost, 4)} nats/token"

    seeds = () if why and len(point.runs) == 1 else point.runs  # a single one would fill the open marker
    lines[f"{place}:ends"] = {"kind": "ends", "group": place, "x": [cost for _, cost, _ in seeds],
                              "y": [value for _, _, value in seeds],
                              "text": [words(titles.get(run, run), cost, value) for run, cost, value in seeds]}
    count = wording.seeds(len(point.runs))
    mean = words(f"mean of {count}", point.cost, point.reward)
    lines[f"{place}:centre"] = {"kind": "centre", "group": place, "x": [point.cost], "y": [point.reward],
                                "hollow": bool(why), "text": [mean + wording.not_finished(why)]}
    return lines


def listed(chosen: Chosen, reward: str, points: list[Point]) -> str:
    """The groups' means as a table, as HTML: the cheapest first."""
    looks = {look["label"]: look for look in look_of(chosen)}
    body = "".join(
        f"<tr><th>{wording.dot(looks[point.label])}{html.escape(looks[point.label]['short'])}"
        f"{'<small class=rl-under>Pareto-optimal</small>' if point.on_front else ''}</th>"
        f"<td>{theme.number(point.reward, 3)}</td><td>{theme.number(point.cost, 4)}</td></tr>"
        for point in sorted(points, key=lambda point: point.cost))
    return (f'<div class="rl-scroll"><table class="rl-table rl-results"><thead><tr><th>Group</th>'
            f"<th>{html.escape(METRICS[reward].label)}</th><th>KL, nats/token</th></tr></thead>"
            f"<tbody>{body}</tbody></table></div>")
