"""The view "Two metrics": a metric of each group against another one, at first the reward against the KL."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from labcore.analysis.compare.groups import Group
from labcore.analysis.compare.statistics import LAST
from labcore.catalog.metric import Metric
from labcore.catalog.metrics import METRICS, ordered
from labcore.runs.traces import AXES

Metrics = tuple[Metric, Metric]  # the one that is drawn up, and the one that is drawn across
COST = "kl"
SMOOTHING = 0.9  # of the ways: as the rows come, there is nothing to see
MOST = 200  # points of a way
SHARE = 0.2  # smallest span of an axis, relative to its largest value


def fits(chosen: Chosen) -> bool:
    """True if any of the runs logs two metrics."""
    return any(len(logged) > 1 for logged in chosen.logged.values())


def pair(chosen: Chosen) -> tuple[str, str]:
    """The metrics that are drawn up and across: the chosen ones, otherwise reward and KL, otherwise the first two."""
    there = set().union(*chosen.logged.values())
    own = chosen.place.x if chosen.place.x not in AXES and chosen.place.x in there else ""
    if own and own != chosen.metric:
        return chosen.metric, own
    if COST in there:
        return earned(chosen), COST
    return chosen.metric, next(key for key in ordered(there) if key != chosen.metric)


def earned(chosen: Chosen) -> str:
    """The metric that is set against the KL: the one that is looked at, if more of it is better."""
    return chosen.metric if METRICS[chosen.metric].better == "higher" else "reward"


def show(chosen: Chosen, stand: Standing | None, full: bool) -> None:
    """The plane, and its groups as numbers beside it."""
    reward, cost = pair(chosen)
    chosen = at_the_same(chosen.with_metrics([chosen.metric, reward, cost]), stand)
    points, at = points_of(chosen.groups, reward, cost), wording.way(stand) if stand else "at the end"
    left, right = st.columns([1.9, 1], gap="medium")
    with left:
        compare_chart(payload(chosen, reward, points, full, cost=cost), "compare_plane", on_resync=resync)
    if points:
        right.html(f"{wording.CSS}{listed(chosen, reward, cost, points)}")
    dotted = ". Dotted: the Pareto front, groups that no other group exceeds in both" if has_front(points) else ""
    better = "Up and to the left is better. " if trades(reward, cost) else ""
    right.caption(f"{better}Thin lines: the smoothed path of each run. "
                  f"Small markers: each seed {at}, as the mean of its last {LAST} steps. Large markers: the mean over "
                  f"a group's seeds{dotted}." if points else
                  f"This chart appears once the runs have logged {METRICS[reward].inline} and {METRICS[cost].inline}.")


def trades(reward: str, cost: str) -> bool:
    """True if more of one metric and less of the other is better, so that there is a Pareto front."""
    return METRICS[reward].better == "higher" and (METRICS[cost].better == "lower" or cost == COST)


def points_of(groups: Sequence[Group], reward: str, cost: str) -> list[Point]:
    """The groups in the plane; none is on a front where there is no trade-off."""
    found = frontier.points(groups, reward, cost)
    return found if trades(reward, cost) else [replace(point, on_front=False) for point in found]


def has_front(points: Sequence[Point]) -> bool:
    """True if there is a line to draw: a front of one group is only a point."""
    return sum(point.on_front for point in points) > 1


@dataclass(frozen=True)
class Plane:
    """Options of the plane: with the `ways` of the runs or only their end points, with a legend or without.

    `names` are the groups' names that differ from the legend, by label; `open` is the reason, as HTML, why a group's
    mean is drawn as an open marker.
    """

    ways: bool = True
    legend: bool = True
    height: int = 470
    names: Mapping[str, str] = field(default_factory=dict)
    open: Mapping[str, str] = field(default_factory=dict)


PLANE = Plane()


def payload(chosen: Chosen, reward: str, points: list[Point], full: bool, plane: Plane = PLANE,
            cost: str = COST) -> dict[str, Any]:
    """The data of `compare_chart`: one panel."""
    up, across = metrics = metrics_of(chosen, reward, cost)
    lines = lines_of(chosen, metrics, points, sent(), plane)
    scene = "|".join(",".join(trace.run for trace in group.traces) for group in chosen.groups)
    said = ", ".join(f"{point.label} {_at(metrics, point.cost, point.reward)}" for point in points)
    key, title = f"{'plane' if plane.ways else 'front'} {reward} {cost}", title_of(metrics)
    panel = {"key": key, "title": title, "symbol": "", "unit": "", "bare": not plane.legend,
             "help": across.label, "scale": "linear", "digits": up.digits, "plane": True,
             "axis": across.page_axis, "yTitle": up.page_axis, "height": plane.height,
             "names": False, "strip": "", "alt": f"{title}: {said or 'no values yet'}", "marks": [],
             "caption": f"{'Thin: paths, smoothed; large' if plane.ways else 'Large'}: means over seeds"
                        f"{'; dotted: the Pareto front' * has_front(points)}",
             "range": {axis: room(lines, axis) for axis in "xy"}, "order": list(lines),
             "lines": sent().changed(key, lines, full)}
    groups = [look | {"short": plane.names.get(look["label"], look["short"])} for look in look_of(chosen)]
    return {"key": f"{scene} {key}", "scene": scene if plane.legend else f"{scene} {key}", "full": full, "main": True,
            "legend": plane.legend, "axis": "plane", "groups": groups, "panels": [panel]}


def metrics_of(chosen: Chosen, reward: str, cost: str = COST) -> Metrics:
    """The metrics up and across as the runs call them, with the digits of the plane's words."""
    return replace(chosen.metric_of(reward), digits=3), replace(chosen.metric_of(cost), digits=4)


def title_of(metrics: Metrics) -> str:
    """The title of the plane."""
    up, across = metrics
    return f"{up.label} against {'KL' if across.key == COST else across.inline}"


def _at(metrics: Metrics, cost: float, value: float) -> str:
    """A point in words: "0.91 at 0.1 nats/token"."""
    up, across = metrics
    unit = "" if across.share else f" {across.unit}"
    return f"{theme.metric_text(up, value, exact=True)} at {theme.metric_text(across, cost, exact=True)}{unit}"


def lines_of(chosen: Chosen, metrics: Metrics, points: list[Point], kept: Sent, plane: Plane = PLANE) -> Lines:
    """The ways of the runs, their ends, the groups' means, and the front through these."""
    lines: Lines = {}
    up, across = metrics
    ended = {point.label: point for point in points}
    for place, group in enumerate(chosen.groups):
        if point := ended.get(group.label):
            why = plane.open.get(group.label, "")
            lines |= kept.lines((place, *metrics, plane.ways), (version(group), family_version(chosen, group), why),
                                partial(_group, group, place, point, metrics, plane.ways, why, chosen.titles))
    if has_front(points):
        front = sorted((point for point in points if point.on_front), key=lambda point: point.cost)
        x, y = [across.on_page(point.cost) for point in front], [up.on_page(point.reward) for point in front]
        lines |= kept.lines(("front", *metrics), (x, y), lambda: {"front": {"kind": "front", "x": x, "y": y}})
    return lines


def room(lines: Lines, axis: str) -> list[float] | None:
    """Return the range of an axis: all drawn values, with some room for labels; the cost axis starts at 0.

    >>> room({"0:path": {"x": [0.2, 1.0]}, "0:ends": {"x": [0.8]}}, "x")
    [-0.02, 1.08]
    >>> room({"0:ends": {"y": [0.5]}}, "y")
    [0.45, 0.55]
    """
    values = [value for line in lines.values() for value in line[axis] if np.isfinite(value)]
    if not values:
        return None
    low, high = min(values), max(values)
    from_zero = axis == "x" and low >= 0
    low = 0.0 if from_zero else low
    span, least = high - low or 1.0 * from_zero, SHARE * max(abs(low), abs(high)) or 1.0
    if span < least and not from_zero:  # a single point would have ticks of seven digits
        middle = (low + high) / 2
        return [middle - least / 2, middle + least / 2]
    return [low - (0.02 if from_zero else 0.08) * span, high + 0.08 * span]


def _group(group: Group, place: int, point: Point, metrics: Metrics, ways: bool, why: str,
           titles: Mapping[str, str]) -> Lines:
    lines: Lines = {}
    up, across = metrics
    for trace in group.traces if ways else ():
        x, y = frontier.path(trace, up.key, across.key, SMOOTHING, MOST)
        if x.size:  # smoothing lags behind: the way is led on to where the run ended
            cost, value = next(end[1:] for end in point.runs if end[0] == trace.run)
            lines[f"{place}:path:{trace.run}"] = {
                "kind": "path", "group": place, "x": digits(across.on_page(1) * np.append(x, cost)),
                "y": digits(up.on_page(1) * np.append(y, value))}

    def words(name: str, cost: float, value: float) -> str:
        return f"{html.escape(name)}: {_at(metrics, cost, value)}"

    seeds = () if why and len(point.runs) == 1 else point.runs  # a single one would fill the open marker
    lines[f"{place}:ends"] = {"kind": "ends", "group": place, "x": [across.on_page(cost) for _, cost, _ in seeds],
                              "y": [up.on_page(value) for _, _, value in seeds],
                              "text": [words(titles.get(run, run), cost, value) for run, cost, value in seeds]}
    count = wording.seeds(len(point.runs))
    mean = words(f"mean of {count}", point.cost, point.reward)
    lines[f"{place}:centre"] = {"kind": "centre", "group": place, "x": [across.on_page(point.cost)],
                                "y": [up.on_page(point.reward)], "hollow": bool(why),
                                "text": [mean + wording.not_finished(why)]}
    return lines


def listed(chosen: Chosen, reward: str, cost: str, points: list[Point]) -> str:
    """The groups' means as a table, as HTML: the lowest of `cost` first."""
    looks, (up, across) = {look["label"]: look for look in look_of(chosen)}, metrics_of(chosen, reward, cost)
    body = "".join(
        f"<tr><th>{wording.dot(looks[point.label])}{html.escape(looks[point.label]['short'])}"
        f"{'<small class=rl-under>Pareto-optimal</small>' if point.on_front else ''}</th>"
        f"<td>{theme.metric_text(up, point.reward, exact=True)}</td>"
        f"<td>{theme.metric_text(across, point.cost, exact=True)}</td></tr>"
        for point in sorted(points, key=lambda point: point.cost))
    return (f'<div class="rl-scroll"><table class="rl-table rl-results"><thead><tr><th>Group</th>'
            f"<th>{html.escape(up.label)}</th><th>{html.escape(across.page_axis)}</th></tr></thead>"
            f"<tbody>{body}</tbody></table></div>")
