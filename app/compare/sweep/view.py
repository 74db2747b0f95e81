"""The view "Sweep": small charts by value on shared axes, the best setting with its evidence, and every run."""

from __future__ import annotations

import html
from collections.abc import Collection, Mapping, Sequence
from functools import partial

import streamlit as st

from app import theme
from app.compare import verdict, wording
from app.compare.curves import resync, sent, version
from app.compare.data import Chosen, judged, look_of, source_of
from app.compare.lines import Lines, lines_of
from app.compare.lines import Look as Shown
from app.compare.plane import COST, Plane, earned, has_front, metrics_of, payload, title_of
from app.compare.sweep import figures, parallel
from app.compare.sweep.grid import Grid, Look, common_note, grid_of, multiples, words
from app.compare.sweep.large.standing import head, standing
from app.components.compare_chart import compare_chart
from app.components.figure_chart import figure_chart
from app.status import STATES
from app.status import name_of as state_of
from labcore.analysis.compare import frontier
from labcore.analysis.compare.best import Standing
from labcore.analysis.compare.frontier import Point
from labcore.analysis.compare.groups import Group
from labcore.catalog.amounts import percent
from labcore.catalog.metric import Metric
from labcore.runs.store.rows import RunRow
from labcore.runs.sweep import Sweep
from labcore.runs.titles import title
from labcore.runs.traces import AXES

MOST = 120  # points of a line in a small chart
LABELLED = 8  # settings; of more only those on the front are named
UNFINISHED = ": not all of its runs finished"


def fits(chosen: Chosen) -> bool:
    """True if the page shows a sweep."""
    return bool(chosen.place.sweep)


def show(chosen: Chosen, stand: Standing | None, full: bool) -> None:
    """The whole view."""
    runs = [source for source in chosen.sources if isinstance(source, RunRow)]
    chosen = _with_plane(chosen)
    grid = grid_of(chosen.groups, Sweep(chosen.place.sweep, tuple(runs)).axes)
    looks, kind = look_of(chosen), theme.ground()
    names = {group.label: name_of(grid, group, look) for group, look in zip(chosen.groups, looks, strict=True)}
    now = standing(chosen.place.sweep, runs, chosen.metric)
    if many := len(now.axes) > 2:  # no grid shows them all
        parallel.show(chosen.place, now)
    _multiples(chosen, grid, looks, kind)
    if stand is None:
        return
    # At equal tokens, say, all are judged where all have been: there what did not finish is no worse off.
    hollow = figures.unfinished(chosen.groups) if stand.place is None else {}
    equal = verdict.at_the_same(chosen, stand)
    points = frontier.points(equal.groups, earned(chosen), COST, beside=hollow)
    left, right = st.columns(2, gap="large") if points else (st.container(), None)
    with left:
        _values(chosen, grid, looks, stand, names, kind, hollow)
    if right:
        with right:
            _front(equal, points, names, hollow, wording.way(stand), full)
    if not many:
        parallel.show(chosen.place, now)
    st.html(wording.CSS + table(chosen, stand, names, looks, parallel.brushed(chosen.place.sweep)))
    st.caption(wording.measured(chosen.metric_of().better))


def _with_plane(chosen: Chosen) -> Chosen:
    """The runs with what the reward-KL plane needs, if any of them has a KL."""
    if not any(COST in logged for logged in chosen.logged.values()):
        return chosen
    return chosen.with_metrics([chosen.metric, earned(chosen), COST])


def name_of(grid: Grid, group: Group, look: Look) -> str:
    """A setting by its values on the axes: "β 0.02 · ε 0.2"; by its group's name where there are none."""
    return " · ".join(words(knob, group.config[knob.key]) for knob in grid.knobs) or look["short"]


def _multiples(chosen: Chosen, grid: Grid, looks: Sequence[Look], kind: str) -> None:
    look, above = Shown(chosen.metric, chosen.axis, chosen.smoothing(), True, MOST, False), chosen.above
    lines: dict[int, Lines] = {}
    for number, (group, of) in enumerate(zip(chosen.groups, judged(chosen).groups, strict=True)):
        parents = [above[trace.run].axes["step"].size for trace in group.traces if trace.run in above]
        lines[number] = sent().lines((number, look, "small"), (version(group), version(of), parents),
                                     partial(lines_of, group, number, look, above, of))
    metric, axis = chosen.metric_of(), AXES[chosen.axis]
    smoothed = f", smoothed {look.smoothing:g}" if look.smoothing else ""
    caption = f"Mean over seeds with its 95 % bootstrap band; faint: single seeds{smoothed}"
    unit = metric.page_axis.removeprefix(metric.label).removeprefix(", ")
    head(metric.label, " · ".join(filter(None, (unit, common_note(looks), f"{caption.lower()}; shared axes"))))
    figure_chart(multiples(grid, looks, lines, metric, axis, kind), "sweep_multiples",
                 title=f"{metric.label} by {' and '.join(knob.label for knob in grid.knobs) or 'algorithm'}",
                 caption=caption, alt=f"{metric.label} over {axis}, one small chart for each of {len(chosen.groups)} "
                 "settings", least=150 * grid.columns)


def _values(chosen: Chosen, grid: Grid, looks: Sequence[Look], stand: Standing, names: Mapping[str, str],
            kind: str, hollow: figures.Hollow) -> None:
    """The result of each value."""
    metric = chosen.metric_of()
    title = f"{metric.label} {wording.way(stand)}"
    caption = "mean over seeds [its 95 % interval]" if len(grid.knobs) == 2 else \
        "mean over seeds with its 95 % interval, and single seeds"
    if any(label in hollow for label in stand.means):
        caption += ("; without a colour" if len(grid.knobs) == 2 else "; hollow") + UNFINISHED
    head(title, caption)
    figure_chart(figures.by_value(grid, chosen.groups, looks, stand, metric, kind, hollow), "sweep_values",
                 title=title, caption=caption.capitalize(), alt=f"{title}: " + ", ".join(
                     f"{names[label]} {theme.metric_text(metric, mean.mean, exact=True)}" for label, mean in
                     stand.means.items()))


def _front(chosen: Chosen, points: list[Point], names: Mapping[str, str], hollow: figures.Hollow, at: str,
           full: bool) -> None:
    reward = earned(chosen)
    title, caption = title_of(metrics_of(chosen, reward)), at
    if has_front(points):
        caption += "; dotted: the Pareto front"
    if any(point.label in hollow for point in points):
        caption += f"; hollow{UNFINISHED}"
    head(title, caption)
    if len(points) > LABELLED:
        names = {point.label: names[point.label] if point.on_front else "" for point in points}
    compare_chart(payload(chosen, reward, points, full, Plane(False, False, 300, names, hollow)), "sweep_front",
                  on_resync=resync)


def table(chosen: Chosen, stand: Standing, names: Mapping[str, str], looks: Sequence[Look],
          only: Collection[str] | None = None) -> str:
    """Every setting with links to its runs, as HTML. The best setting is marked only if one direction of the metric is
    better. `only`: show these runs alone."""
    metric, body = chosen.metric_of(), ""
    better, best = metric.better, stand.leader if metric.better else None
    for group, look in zip(chosen.groups, looks, strict=True):
        mean = stand.means.get(group.label)
        share = (stand.shares or {}).get(group.label)
        runs = [source for trace in group.traces if isinstance(source := source_of(chosen, trace.run), RunRow)
                and (only is None or source.id in only)]
        if not runs:
            continue
        links = " ".join(_link(run, stand.of_run.get(run.id), metric) for run in runs)
        label = html.escape(names[group.label])
        cell = f"<td>{'–' if share is None else percent(share)}</td>" if better else ""
        body += (f"<tr><th>{wording.dot(look)}{label}"
                 f"{'<small class=rl-under>has the best mean</small>' if group.label == best else ''}</th>"
                 f"<td>{wording.mean(mean, metric)}</td>{cell}"
                 f'<td style="text-align:left;white-space:normal">{links}</td></tr>')
    why = "How often its mean is the best in bootstrap resamples of the seeds"
    share_head = f'<th title="{why}">Best in</th>' if better else ""
    return ('<div class="rl-scroll"><table class="rl-table rl-results"><thead><tr><th>Setting</th>'
            f"<th>{html.escape(metric.label)} {html.escape(wording.way(stand))}</th>"
            f'{share_head}<th style="text-align:left">Its runs</th></tr></thead><tbody>{body}</tbody></table></div>')


def _link(run: RunRow, value: float | None, metric: Metric) -> str:
    colour, state = STATES[run.state][0], state_of(run)
    said = state.lower() if value is None else theme.metric_text(metric, value, exact=True)
    dot = "" if run.state == "finished" else f'<span class="rl-dot" style="background:{colour};margin:0 .2rem"></span>'
    return (f'<a href="{run.spec.kind}?run={run.id}" target="_self" title="{html.escape(title(run))}, {state.lower()}" '
            f'style="margin-right:.9rem;white-space:nowrap;color:inherit">{dot}seed {run.spec.seed}: {said}</a>')
