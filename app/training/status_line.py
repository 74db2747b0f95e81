"""The status line and the row of numbers of the open run, as HTML. Pure."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Sequence
from dataclasses import replace

from app.naming import message
from app.status import STATES, duration
from app.theme import number
from app.training.feed import Feed, headline
from labcore.catalog.metrics import METRICS
from labcore.runs.places import waits
from labcore.runs.titles import title
from labcore.store.rows import RunRow

LOADING_SECONDS = 0.4  # a process that has loaded PyTorch takes a run up sooner


def progress(run: RunRow, feed: Feed) -> str:
    """How far, how fast, how long still."""
    parts = [f"step {run.step:,} of {run.spec.steps:,}"]
    counted = "updates" if feed.value("updates") is not None else "steps"
    if (rate := feed.rate(counted)) is not None:
        parts.append(f"{number(rate, 1 if rate < 10 else 0)} {counted}/s")
    if steps := feed.rate():
        parts.append(f"at most {duration((run.spec.steps - run.step) / steps)} left")
    return " · ".join(parts)


def outcome(run: RunRow, feed: Feed) -> str:
    """What came out: the headline numbers, from first to last."""
    found = []
    for metric in headline(feed, 3):
        first, last = feed.value(metric.key, first=True), feed.value(metric.key)
        if last is not None:
            found.append(f"{metric.inline} {number(first, metric.digits)} → {number(last, metric.digits)}")
    return ", ".join(found)


def line(run: RunRow, feed: Feed, stage: str = "", holders: Sequence[RunRow] = ()) -> str:
    """The status line as HTML. `stage` names the part of a chain, such as "Stage 1 of 2: SFT"; `holders` are the runs
    that have the places for which this one waits."""
    colour, name, following = STATES[run.state]
    share = min(1.0, run.step / run.spec.steps) if run.spec.steps else 0
    ink = html.escape
    waited = duration(max(0.0, time.time() - (run.started or run.created)))
    if run.state == "running":
        rest = ""
        words = progress(run, feed) if feed.steps else f"{message(run) or 'waiting for the first step'} · {waited}"
    elif run.state in ("queued", "starting"):
        words = f"{message(run) or _waking(run)} · {waited}"
        rest = f'<span class="rl-muted">{ink(following if run.message else "")}</span>'
    else:
        said = "" if run.state == "finished" and run.step == run.spec.steps else message(run)
        done = f"{run.step:,} of {run.spec.steps:,} steps in {duration(run.seconds)}" if run.step else ""
        words = " · ".join(part for part in (said.rstrip("."), done, outcome(run, feed)) if part)
        rest = f'<span class="rl-muted">{ink(following)}</span>'
    head = f"<b>{ink(stage)}</b> · " if stage else ""
    if stage:
        rest = ""
    told = waits(ink(words), holders, linked)
    whole = re.sub(r"<[^>]+>", "", f"{head}{name} {told}")  # where it is longer than its one line
    return (f'<div class="rl-status rl-run" role="status" title="{whole}">'
            f'<span class="rl-dot" style="background:{colour}"></span>'
            f"<span>{head}<b>{name}</b> {told}</span>{rest}</div>"
            f'<div class="rl-bar"><i style="width:{share:.1%};background:{colour}"></i></div>')


def linked(run: RunRow) -> str:
    """The title of a run as a link to it: HTML."""
    return (f'<a href="{run.spec.kind}?run={run.id}" target="_self" style="color:inherit">'
            f"{html.escape(title(run))}</a>")


def _waking(run: RunRow) -> str:
    """What a run without a message waits for: it is taken up at once, unless the lab itself has just started."""
    loading = run.state == "queued" and not run.started and time.time() - run.created > LOADING_SECONDS
    return "loading PyTorch" if loading else "starting a worker"


def numbers(feed: Feed, at: int | None = None) -> str:
    """The row of numbers as HTML: the value at step `at` (None: the newest), its unit where it is a new one, how it
    moved since the first step.
    """
    cells, before = [], ""
    kind = feed.spec.kind_row
    pace = METRICS[kind.speed]
    speed = [replace(pace, unit=kind.speed_unit or pace.unit)] if feed.walks else []
    for metric in (*headline(feed), *speed):
        last, first = feed.value(metric.key, at=at), feed.value(metric.key, first=True)
        moved = ""
        if last is not None and metric.about == "training" and last != first:
            change = last - first
            moved = f"<em>{'+' if change > 0 else ''}{number(change, metric.digits)} since start</em>"
        shown = "–" if last is None else number(last, metric.digits)
        unit = f" {html.escape(metric.unit)}" if "/" in metric.unit and metric.unit != before else ""
        before = metric.unit
        tip = html.escape(f"{metric.help} Unit: {metric.unit}." if metric.unit else metric.help)
        cells.append(f'<div title="{tip}"><span>{html.escape(metric.label)}{unit}</span><b>{shown}</b>{moved}</div>')
    return f'<div class="rl-numbers">{"".join(cells)}</div>'
