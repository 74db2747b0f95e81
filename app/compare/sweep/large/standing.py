"""A large sweep in words, and its ranking as HTML, a page at a time; `labcore.analysis.compare.ranking` ranks it."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import streamlit as st

from app import naming
from app.compare import wording
from app.compare.sweep.grid import words
from app.compare.wording import NONE
from app.compare.wording import mean as mean_words
from app.lab import lab
from app.status import STATES, name_of
from app.theme import metric_text
from labcore.analysis.compare import ranking, statistics
from labcore.analysis.compare.ranking import Axis, Ends, Setting, Standing
from labcore.analysis.compare.statistics import LAST
from labcore.analysis.estimate import FEWEST
from labcore.catalog.knob import Value
from labcore.runs.store.rows import RunRow
from labcore.runs.sweep import Sweep
from labcore.runs.titles import title


@st.cache_resource(show_spinner=False)
def ends() -> Ends:
    return Ends(lab().store)


def standing(sweep_id: str, rows: Sequence[RunRow], metric: str) -> Standing:
    """The present ranking of the runs of a sweep, by a metric as these runs call it."""
    found = ranking.standing(lab().store, Sweep(sweep_id, tuple(rows)), ends(), metric)
    return replace(found, metric=naming.metric(found.metric.key, [row.spec for row in rows]))


def where(now: Standing) -> str:
    """Where runs are compared for a knob."""
    if now.early:
        return f"at step {now.early.min_steps:,}, before any run is stopped early"
    return "of the runs that finished"


def name(now: Standing, setting: Setting) -> str:
    """A setting by its values: "β 0.05 · G 32"."""
    return " · ".join(value_words(axis, value, True) for axis, value in zip(now.axes, setting.values, strict=True)
                      if value is not None) or setting.runs[0].spec.row.label


def value_words(axis: Axis, value: Value | None, named: bool = False) -> str:
    """A value of an axis as people write it, `named` with the knob."""
    if value is None:
        return NONE
    if axis.knob is None:
        return str(value)
    return words(axis.knob, value) if named else words(axis.knob, value).removeprefix(axis.knob.name).strip()


def head(title: str, words: str) -> None:
    """A line above a picture or a table."""
    st.html(f'<div class="rl-status"><b>{html.escape(title)}</b> <span class="rl-muted">{html.escape(words)}</span>'
            "</div>")


def headline(now: Standing) -> str:
    """Who is ahead, and how sure that is, as HTML."""
    metric, whole = now.metric, [setting for setting in now.ranked if setting.whole]
    if not metric.better:
        return f"No direction of {html.escape(metric.inline)} is better, so settings are not ranked."
    if not whole:
        return html.escape(_best_run(now))
    best = whole[0]
    assert best.mean
    so_far = f"So far, of the {len(whole):,} finished settings, " if now.active else "Of " + (
        f"{len(whole):,} settings " if len(whole) == len(now.ranked) else
        f"the {len(whole):,} of {len(now.ranked):,} settings whose runs all finished, ")
    said = (f"{so_far}the best is {name(now, best)} ({metric_text(metric, best.mean.mean, exact=True)}, "
            f"{best.mean.count:,} seed{'s' if best.mean.count > 1 else ''}).")
    return html.escape(f"{said} {_against(now, whole)}".strip())


def _best_run(now: Standing) -> str:
    """Where of no setting all runs finished."""
    ended = {run.id: (setting, run) for setting in now.ranked for run in setting.runs
             if run.state == "finished" and run.id in now.values}
    if not ended:
        return "No run has finished yet." if now.active else "No run finished."
    best = (min if now.metric.better == "lower" else max)(ended, key=lambda run_id: now.values[run_id])
    setting, run = ended[best]
    assert setting.mean
    return (f"The best of the {len(ended):,} runs that {'have finished so far' if now.active else 'finished'}: "
            f"{name(now, setting)}, seed {run.spec.seed} ({metric_text(now.metric, now.values[best], exact=True)}). "
            f"{setting.mean.count:,} of {len(setting.runs):,} runs of its setting finished.")


def _against(now: Standing, whole: Sequence[Setting]) -> str:
    """A sentence that compares the best setting with the next one."""
    if len(whole) < 2:
        return ""
    first, second = (np.array([setting.results[run.id] for run in setting.runs]) for setting in whole[:2])
    if min(first.size, second.size) < FEWEST:
        return "One or two seeds are not enough to rank them."
    lead = ("It is better than the next" if statistics.comparison(first, second, now.metric.better).verdict == "A" else
            "Seeds alone can explain its lead over the next")
    return f"{lead} setting, {name(now, whole[1])}. With many settings, part of the best one's lead is chance."


def shown(now: Standing, setting: Setting) -> str:
    """The number of a setting as HTML: a mean with its interval. If some of its runs did not finish, the mean of the
    others has no interval, because the finished runs are the better ones."""
    if setting.mean is None:
        return NONE
    if setting.whole:
        return mean_words(setting.mean, now.metric)
    many = f"{setting.mean.count:,}" if setting.mean.count > 1 else "one"
    return f"{metric_text(now.metric, setting.mean.mean, exact=True)}<small>of the {many} that finished</small>"


MEASURED = (f"Value per run: mean of its last {LAST} steps. Value per setting: mean over its seeds with its 95 % "
            f"interval.")


# ---------------------------------------------------------------- table

ROWS = 20  # settings of a page
LINKED = 12  # runs of a setting that are linked; more are counted


def table(now: Standing, settings: Sequence[Setting], first: int) -> str:
    """A page of the ranking; `first` is the place of its first setting."""
    heads = "".join(f"<th>{html.escape(axis.title)}</th>" for axis in now.axes)
    body = "".join(_row(now, setting, first + place) for place, setting in enumerate(settings))
    return (wording.CSS + '<div class="rl-scroll"><table class="rl-table rl-results"><thead><tr>'
            f'<th style="min-width:3rem">Rank</th><th>{html.escape(now.metric.label)}</th>{heads}<th>Runs</th>'
            f'<th style="text-align:left">Each run, by seed</th></tr></thead><tbody>{body}</tbody></table></div>')


def _row(now: Standing, setting: Setting, place: int) -> str:
    rank = f"{place + 1:,}" if setting.whole and now.metric.better else wording.NONE
    values = "".join(f"<td>{html.escape(value_words(axis, value))}</td>"
                     for axis, value in zip(now.axes, setting.values, strict=True))
    links = " ".join(_link(now, run, setting) for run in setting.runs[:LINKED])
    more = f" and {len(setting.runs) - LINKED:,} more" if len(setting.runs) > LINKED else ""
    return (f"<tr><th>{rank}</th><td>{shown(now, setting)}</td>{values}<td>{counts(setting.runs)}</td>"
            f'<td style="text-align:left;white-space:nowrap">{links}{more}</td></tr>')


def counts(runs: Sequence[RunRow]) -> str:
    """The number of a setting's runs in each state: "10 finished", "4 finished, 6 stopped early"."""
    found = Counter("stopped early" if run.early else name_of(run).lower() for run in runs)
    return "<br>".join(f"{many:,} {state}" for state, many in sorted(found.items(), key=lambda each: each[0]))


def _link(now: Standing, run: RunRow, setting: Setting) -> str:
    colour, state = STATES[run.state][0], name_of(run)
    if run.state == "finished" and run.id in setting.results:
        dot, said = "", metric_text(now.metric, setting.results[run.id], exact=True)
    else:
        dot = f'<span class="rl-dot" style="background:{colour};margin:0 .2rem"></span>'
        said = f"step {run.step:,}" if run.step else "–"
    words = f"seed {run.spec.seed}, {'stopped early' if run.early else state.lower()}: {title(run)}"
    return (f'<a href="{run.spec.kind}?run={run.id}" target="_self" title="{html.escape(words)}" '
            f'style="margin-right:.7rem;color:inherit">{dot}{said}</a>')
