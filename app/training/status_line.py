"""The status line of the open run and its tiles, as they are sent to the charts, which write them. Pure."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from app.naming import message
from app.status import STATES, bar, done_share, duration, name_of, of_steps, what_next
from app.theme import number
from app.training.feed import Feed, rounded, tiles
from labcore.catalog.knob import shown
from labcore.runs.places import waiting_sentence
from labcore.runs.spec.run_spec import knobs_of
from labcore.runs.store.rows import Control, RunRow
from labcore.runs.titles import title

APART = '<i class="rl-apart"> · </i>'  # between two parts of the line
SILENT_SECONDS, LONG_STEPS = 60.0, 4.0  # silence to report: a minimum, and a number of recent steps
LOADING_SECONDS = 0.4  # a process that has loaded PyTorch takes a run up sooner


def progress(run: RunRow, feed: Feed) -> list[str]:
    """The step, the speed and the time left, of the row that the charts show."""
    step, steps = feed.last_step, run.spec.steps
    parts = [f"step {of_steps(step, steps)}"]
    counted = "updates" if feed.value("updates") is not None else "steps"
    if (rate := feed.rate(counted)) is not None:
        parts.append(f"{number(rate, 1 if rate < 10 else 0)} {counted}/s")
    if steps and (pace := feed.rate()):
        parts.append(f"at most {duration((steps - step) / pace)} left")
    return parts


def to_come(run: RunRow, asked: Iterable[Control]) -> list[str]:
    """The requested knobs (`asked`) that have not taken effect yet, and when they will."""
    knobs = {knob.key: knob for knob in knobs_of(run.spec.row, run.spec.task_row)}
    wanted = {control.payload["knob"]: control.payload["value"] for control in asked if control.command == "set"}
    return [f"{knobs[key].name} {shown(value)} takes effect "
            f"{'at the next update' if knobs[key].effect == 'live' else 'with the next batch'}"
            for key, value in wanted.items() if key in knobs]


def line(run: RunRow, feed: Feed, stage: str = "", holders: Sequence[RunRow] = (), waiting: Sequence[str] = ()) -> str:
    """The status line as HTML. `stage` names the part of a chain, such as "Stage 1 of 2: SFT"; `holders` are the runs
    that have the places for which this one waits; `waiting` says what has not taken effect yet.

    It has several parts, the most important first. If the run has a message, all parts are shown. Otherwise they stay
    in one row, so that nothing below moves, and parts without room are left out.
    """
    elsewhere = run.spec.kind_row.elsewhere
    colour, name, following = STATES[run.state][0], name_of(run), what_next(run.state, run.step, elsewhere)
    silent = silence(run, feed)
    said = activity = message(run) or silent
    colour = STATES["paused"][0] if silent else colour
    step = run.step
    waited = duration(max(0.0, time.time() - (run.started or run.created)))
    if run.state == "running" and feed.steps:
        parts, step = progress(run, feed), feed.last_step
        parts[1:1] = [*filter(None, [said]), *waiting]
        said = ""
    elif run.state == "running":
        awaited = "waiting for its first line" if elsewhere else "waiting for the first step"
        parts, said = [said or awaited, *waiting, waited], ""
    elif run.state in ("queued", "starting"):
        parts, following = [said or _waking(run), waited], following if said else ""
    else:
        said = "" if run.state == "finished" and step == run.spec.steps else said
        done = f"{of_steps(step, run.spec.steps)} steps in {duration(run.seconds)}" if step else ""
        parts = [part for part in (said.rstrip("."), done) if part] or [""]
    if any(word in activity.lower() and word in following.lower() for word in ("resume", "free")):  # said already
        following = ""
    if run.pending:
        when = [] if activity else ["after this step" if run.step else "before its first step"]  # else: within it
        parts, following = [*when, *filter(None, parts)], ""
    texts = [waiting_sentence(escape(part), holders, linked) for part in parts]
    texts[0] = f"<b>{name}</b> {texts[0]}"
    if stage:
        texts.insert(0, f"<b>{escape(stage)}</b>")
    dot = f'<i class="rl-dot" style="background:{colour}"></i>'
    spans = [f"<span>{dot}{texts[0]}</span>", *(f"<span>{APART}{part}</span>" for part in texts[1:])]
    if following and not stage:
        spans.append(f'<span class="rl-muted">{APART}{escape(following)}</span>')
    whole = re.sub(r"<[^>]+>", "", "".join(spans))  # where there is no room for all of it
    return (f'<div class="rl-status rl-run{"" if said else " rl-one-row"}" role="status" title="{whole}">'
            f'{"".join(spans)}</div>{bar(done_share(step, run.spec.steps), colour)}')


def silence(run: RunRow, feed: Feed) -> str:
    """Return how long a watched run has sent nothing, if this is much longer than its steps take."""
    if not run.spec.kind_row.elsewhere or run.state != "running" or run.heartbeat is None:
        return ""
    seconds, pace = time.time() - run.heartbeat, feed.rate()
    if seconds < max(SILENT_SECONDS, LONG_STEPS / pace if pace else 0.0):
        return ""
    return f"no line for {duration(seconds)}: the trainer is paused, busy or has ended"


def linked(run: RunRow) -> str:
    """The title of a run as a link to it: HTML."""
    return (f'<a href="{run.spec.kind}?run={run.id}" target="_self" style="color:inherit">{escape(title(run))}</a>')


def _waking(run: RunRow) -> str:
    """The reason why a run without a message waits: it is taken up at once, unless the lab itself has just started."""
    loading = run.state == "queued" and not run.started and time.time() - run.created > LOADING_SECONDS
    return "loading PyTorch" if loading else "starting a worker"


def numbers(feed: Feed) -> list[dict[str, Any]]:
    """The tiles without their numbers, which the charts take from the row that they show. `first` is the metric's first
    value, if it shows the progress of training; `unit` is given only where it is not obvious."""
    found, compared = [], not feed.by_difficulty
    for metric in tiles(feed):
        first = feed.value(metric.key, first=True) if compared and metric.about == "training" else None
        found.append({"key": metric.key, "label": metric.label, "digits": metric.digits, "share": metric.share,
                      "unit": metric.unit if "/" in metric.unit else "",
                      "help": f"{metric.help} Unit: {metric.page_unit}." if metric.unit else metric.help,
                      "first": None if first is None else rounded(first)})
    return found
