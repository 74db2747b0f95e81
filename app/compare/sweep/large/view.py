"""The page of a large sweep. One fragment: its head, its pictures and its ranking are drawn again while runs go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial

import streamlit as st

from app import link, naming, theme
from app.compare import run_picker
from app.compare.controls import moved
from app.compare.curves import sent, version
from app.compare.data import Source, reader
from app.compare.lines import Lines, Look, lines_of
from app.compare.place import Place, go
from app.compare.sweep import parallel
from app.compare.sweep.large import figures
from app.compare.sweep.large.standing import MEASURED, ROWS, head, headline, name, standing, table, where
from app.components.figure_chart import figure_chart
from app.lab import errors_shown, in_words, lab
from app.tokens import literal
from app.widget_state import widget_state
from labcore.analysis.compare.groups import Group
from labcore.analysis.compare.ranking import LARGE, Setting, Standing, offered
from labcore.catalog.amounts import percent
from labcore.errors import LabError
from labcore.runs import sweep
from labcore.runs.store.rows import ACTIVE, RunRow

EVERY = 3.0  # seconds between two looks at a sweep that goes
COMPARED = 8  # settings that the page Compare draws over each other
NEW = "at_size:new"
POINTS = 240  # of a curve


def fits(place: Place, sources: Sequence[Source]) -> bool:
    """True if the page shows a sweep that is too large for the other views."""
    return bool(place.sweep) and len(sources) > LARGE


def show(place: Place, sources: Sequence[Source], said: Sequence[str]) -> None:
    """The whole page; `said` are sentences on the parts of the link that do not fit."""
    rows = [source for source in sources if isinstance(source, RunRow)]
    for sentence in said:
        st.warning(literal(sentence), icon=":material/error:")
    st.session_state[NEW] = True  # they were just read
    st.fragment(_tick, run_every=EVERY if _active(rows) else None, key="at_size")(place, rows, link.query())


def _active(rows: Sequence[RunRow]) -> bool:
    return any(row.state in ACTIVE for row in rows)


@errors_shown()
def _tick(place: Place, rows: list[RunRow], query: dict[str, str]) -> None:
    try:
        if not st.session_state.pop(NEW, False):
            rows = _again(place, rows, query)
        _draw(place, rows)
    except LabError as error:  # what was there a moment ago is gone
        st.error(in_words(error), icon=":material/error:")


def _again(place: Place, seen: list[RunRow], query: dict[str, str]) -> list[RunRow]:
    """The runs as they are now; where the page around them would be another one, it is run again."""
    rows = list(sweep.sweep(lab().store, place.sweep).runs)
    if link.query() != query or _active(rows) != _active(seen) or len(rows) <= LARGE:
        st.rerun()
    return rows


def _draw(place: Place, rows: Sequence[RunRow]) -> None:
    sent().begin(place)
    now = standing(place.sweep, rows, place.metric)
    above, beneath = st.container(key="at_size_head"), st.container()
    with beneath:  # first: pictures take the browser longest
        if now.values:
            _pictures(place, now)
            parallel.show(place, now)
        else:
            st.info(literal(_nothing(now)), icon=":material/hourglass_empty:")
        _ranking(now, parallel.brushed(place.sweep))
    with above:
        run_picker.row(place, rows, large=True)
        _controls(now, offered(rows))


def _nothing(now: Standing) -> str:
    if not any(row.step for row in now.rows):
        if now.active:
            return "Nothing to show before the first steps."
        why, many = Counter(row.message for row in now.rows).most_common(1)[0]
        return "None of these runs made a step." + (f" {many:,} of them report: {why}" if why else "")
    return f"No run has logged {now.metric.inline}. Choose another metric."


def _controls(now: Standing, metrics: Sequence[str]) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="at_size_controls"):
        metrics = [*metrics, *([] if now.metric.key in metrics else [now.metric.key])]
        shown = widget_state("at_size:metric", now.metric.key, tuple(metrics))
        specs = [row.spec for row in now.rows]
        st.selectbox("Metric", metrics, metrics.index(shown.value), key=shown.key, width=230,
                     format_func=lambda key: naming.metric(key, specs).label, on_change=moved("metric", shown),
                     label_visibility="collapsed",
                     help="Metric that ranks the runs" if now.metric.better else "Metric shown for the runs")
        if best := _compared(now):
            st.button(f"Curves of the {'best' if now.metric.better else 'first'} {len(best)}",
                      icon=":material/show_chart:", help="Compare these settings run by run",
                      on_click=lambda: go(Place(runs=tuple(run.id for setting in best for run in setting.runs),
                                                metric=now.metric.key)))


def _compared(now: Standing) -> list[Setting]:
    """The best settings, as many as fit on the page Compare."""
    best, runs = [], 0
    for setting in [setting for setting in now.ranked if setting.mean][:COMPARED]:
        runs += len(setting.runs)
        if runs > LARGE:
            break
        best.append(setting)
    return best


def _pictures(place: Place, now: Standing) -> None:
    kind = theme.ground()
    st.html(f'<div class="rl-status" role="status"><b>{headline(now)}</b></div>')
    points = figures.points_of(now.rows, now.axes, now.alike)
    two = len(now.effects) > 1 and len(points) > 1
    if points and now.axes:
        left, right = st.columns([1.4, 1], gap="large") if two else (st.container(), None)
        with left:
            _knobs(now, points, kind)
        if right:
            with right:
                _map(now, points, kind)
    elif now.axes:
        st.caption("The effect of each knob appears once runs have finished.")
    _curves(place, now, kind)


def _knobs(now: Standing, points: Sequence[figures.Point], kind: str) -> None:
    seeds = now.of_seeds
    words = f"{now.metric.label} {where(now)}; dots: settings, line: their mean. Shares are estimates (ω²)"
    if seeds is not None:
        words += f"; seeds of one setting make {percent(min(seeds, 1.0))} of the variance of all runs"
    head("Effect of each knob", words)
    figure_chart(figures.knobs(now.effects, points, now.axes, now.metric, kind), "at_size_knobs",
                 title=f"{now.metric.label} by knob",
                 caption=f"{where(now).capitalize()}. Dots: settings, line: their mean",
                 least=190 * len(now.effects), alt="Share of the variance that each knob explains alone: "
                 + ", ".join(f"{effect.axis.title} {figures.share_words(effect)}" for effect in now.effects))


def _map(now: Standing, points: Sequence[figures.Point], kind: str) -> None:
    across, up = (effect.axis for effect in now.effects[:2])
    beside = "" if len(now.axes) == 2 else ", averaged over the other knobs"
    head("Two knobs together", f"mean {now.metric.inline}{beside}")
    figure_chart(figures.two_knobs(across, up, points, now.axes, now.metric, kind), "at_size_map",
                 title=f"{now.metric.label} by {across.title} and {up.title}",
                 caption=f"{where(now).capitalize()}{beside}",
                 alt=f"Mean {now.metric.inline} for each pair of values of {across.title} and {up.title}")


def _ranking(now: Standing, only: Collection[str] | None) -> None:
    """The settings, or those with a run among `only`."""
    ranked = [setting for setting in now.ranked if only is None or any(run.id in only for run in setting.runs)]
    count = len(ranked)
    runs = "one row per setting" if count < len(now.rows) else "one run per setting"
    first_words = "best first" if now.metric.better else "highest first"
    head(f"{count:,} settings", f"{runs}, {first_words}. {MEASURED} {_left_out(now)}".strip())
    pages = -(-count // ROWS)
    first = 0
    if pages > 1:
        with st.container(horizontal=True, vertical_alignment="center", key="at_size_pager"):
            first = ROWS * (st.pagination(pages, key=f"at_size:page:{pages}") - 1)
            st.caption(f"{first + 1:,} to {min(first + ROWS, count):,} of {count:,}")
    st.html(table(now, ranked[first:first + ROWS], first))


def _left_out(now: Standing) -> str:
    """The settings without a rank, and why."""
    parts = []
    if now.metric.better and any(not setting.whole for setting in now.ranked):
        parts.append("A setting is ranked once all of its runs have finished. Runs that were stopped early are not "
                     "compared.")
    if now.aside:
        parts.append(f"Left out: {now.aside:,} run{'s' if now.aside > 1 else ''} in which a knob was changed mid-run.")
    return " ".join(parts)


def _curves(place: Place, now: Standing, kind: str) -> None:
    """Draw them, or say when they will be."""
    chosen = now.extremes()
    if not chosen:
        if now.metric.better and now.active:
            st.caption("The curves of the best, the median and the worst setting appear once all runs of a setting "
                       "have ended.")
        return
    look = Look(now.metric.key, "step", place.smooth or 0.0, False, POINTS, False)
    rows = [[run for run in setting.runs if run.state == "finished"] or [run for run in setting.runs if run.step]
            for setting in chosen.values()]
    traces = iter(reader().traces([run for each in rows for run in each], [now.metric.key]))
    groups = [Group(title, tuple(next(traces) for _ in each), (), {}) for title, each in zip(chosen, rows, strict=True)]
    lines = [_with_band(setting, sent().lines((place.sweep, group.label, look), version(group),
                                              partial(lines_of, group, number, look, {})))
             for number, (setting, group) in enumerate(zip(chosen.values(), groups, strict=True))]
    colours = dict(zip(("Best", "Median", "Worst"), (
        (theme.LIGHT[0], theme.DARK[0]), figures.MIDDLE, (theme.LIGHT[5], theme.DARK[5])), strict=True))
    caption = _words(now, [setting for setting, each in zip(chosen.values(), rows, strict=True) if len(each) > 1])
    head("From the best to the worst", caption[0].lower() + caption[1:])
    named = [f"{title}: {name(now, setting)}{_short_of(setting)}" for title, setting in chosen.items()]
    figure_chart(figures.curves(named, lines, [colours[title] for title in chosen], now.metric, kind), "at_size_curves",
                 title=f"{now.metric.label}: the best, the median and the worst setting", caption=caption,
                 alt="; ".join(named))


def _with_band(setting: Setting, lines: Lines) -> Lines:
    """The lines of a setting with their band. If some runs did not finish there is no band, because the others are the
    better ones."""
    return lines if setting.whole else {key: line for key, line in lines.items() if line["kind"] != "band"}


def _words(now: Standing, several: Sequence[Setting]) -> str:
    """The caption of the curves; `several` are the settings of more than one run."""
    words = "One seed each"
    if several:
        words = "Mean over seeds" + (" with its 95 % bootstrap band" if any(each.whole for each in several) else "")
        if not all(each.whole for each in several):
            words += ("; no band" if words.endswith("seeds") else "; without a band") + " where a run did not finish"
    count = len(now.ended)
    if count == len(now.ranked) or not all(setting.over for setting in now.ended):
        return words
    return f"{words}. Based on the {count:,} settings whose runs have all ended"


def _short_of(setting: Setting) -> str:
    """The number of finished runs of a setting, if not all finished."""
    return "" if setting.whole else (f" ({setting.mean.count if setting.mean else 0:,} of {len(setting.runs):,} "
                                     "finished)")
