"""The ranking of a large sweep as HTML, a page at a time: each setting with its number and links to its runs. Pure."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence

from app.compare import wording
from app.compare.sweep.large.standing import shown, value_words
from app.status import STATES, name_of
from app.theme import number
from labcore.analysis.compare.ranking import Setting, Standing
from labcore.runs.store.rows import RunRow
from labcore.runs.titles import title

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
    """How many runs of a setting are where: "10 finished", "4 finished, 6 stopped early"."""
    found = Counter("stopped early" if run.early else name_of(run).lower() for run in runs)
    return "<br>".join(f"{many:,} {state}" for state, many in sorted(found.items(), key=lambda each: each[0]))


def _link(now: Standing, run: RunRow, setting: Setting) -> str:
    colour, state = STATES[run.state][0], name_of(run)
    if run.state == "finished" and run.id in setting.results:
        dot, said = "", number(setting.results[run.id], now.metric.digits)
    else:
        dot = f'<span class="rl-dot" style="background:{colour};margin:0 .2rem"></span>'
        said = f"step {run.step:,}" if run.step else "–"
    words = f"seed {run.spec.seed}, {'stopped early' if run.early else state.lower()}: {title(run)}"
    return (f'<a href="{run.spec.kind}?run={run.id}" target="_self" title="{html.escape(words)}" '
            f'style="margin-right:.7rem;color:inherit">{dot}{said}</a>')
