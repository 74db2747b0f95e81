"""The sentence above a run: its prompt, its reward and its progress. Home and other pages show the same one.

`html(spec)` is the sentence of a run or of a draft, `now(feed)` its end, which the charts fill in at the step shown.
"""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import Any

import streamlit as st

from app.components.run_head import HEAD
from app.draft import Draft
from app.theme import metric_text, number
from app.training.feed import Feed
from labcore.catalog.amounts import percent
from labcore.catalog.goal import Quote
from labcore.catalog.metric import Metric
from labcore.catalog.metrics import NOW
from labcore.catalog.right import named, right
from labcore.errors import LabError
from labcore.runs.spec.run_spec import RunSpec


def html(spec: RunSpec) -> str:
    """The sentence of a run; empty if its task cannot be made, which a message beside the task says."""
    parts = _parts(spec.to_json(), spec)
    return "".join(f"<code>{escape(each)}</code>" if quoted else escape(each) for each, quoted in parts)


def text(spec: RunSpec) -> str:
    """The sentence about the goal without markup, for a description of the run."""
    return "".join(f"“{each}”" if quoted else each for each, quoted in _parts(spec.to_json(), spec))


def prompt(spec: RunSpec) -> str:
    """The prompt of the sentence's example, in one line; empty without any."""
    return next((each for each, quoted in _parts(spec.to_json(), spec) if quoted), "")


@st.cache_data(show_spinner=False, max_entries=64)
def _parts(key: str, _spec: RunSpec) -> list[tuple[str, bool]]:
    """The sentence in parts, and which of them are quotes; once for each spec, since a file is read for it."""
    try:
        return [(str(part), isinstance(part, Quote)) for part in _spec.goal().parts]
    except LabError:
        return []


def show(draft: Draft, place: str) -> None:
    """The sentence of a run that has not begun: "above" the form on a phone, else "beside" it."""
    fields = draft.fields
    spec = RunSpec(draft.kind.key, fields["algorithm"], fields["task"], fields["model"], draft.values,
                   data=fields["data"].get(draft.task_row.data), mix=fields["mix"])
    if said := html(spec):
        st.html(f'<style>{HEAD.style}</style><p class="rl-goal rl-{place}">{said}</p>')


def now(feed: Feed) -> list[dict[str, Any]]:
    """The state of the run as parts that each need a metric's value at the step shown: the `key` of the metric, the
    words `before` and `after` its value, and whether it is a `share`."""
    shown = measured(feed)
    parts = [_part(metric, feed) for metric in shown]
    for place, part in enumerate(parts):
        part["before"] = f" Now {part['before']}" if not place else f", {part['before']}"
    if parts:
        parts[-1]["after"] += ", on prompts chosen by their difficulty." if feed.by_difficulty else "."
    return parts


def measured(feed: Feed) -> list[Metric]:
    """The metrics that show the progress of a run: the first one that it logs and, if the reward is not the share of
    right completions, that share too."""
    found = [metric for metric in NOW if metric.key in feed.logged]
    if [metric.key for metric in found[:2]] != ["reward", "exact_match"]:
        return found[:1]
    if "exact_match" not in feed.own:
        return found[1:2]
    exact = named("exact_match", right(feed.spec.task_row, feed.spec.knobs))
    return [found[0], replace(exact, now=f"{exact.inline} in {{}}")]


def _part(metric: Metric, feed: Feed) -> dict[str, Any]:
    first = feed.value(metric.key, first=True)
    before, _, after = metric.now.partition("{}")
    start = ""
    if first is not None and not feed.by_difficulty:
        start = f" ({metric_text(metric, first)} at the start)"
    return {"key": metric.key, "before": before, "after": f"{after}{start}", "share": metric.share,
            "digits": metric.digits}


def words(feed: Feed, at: int | None = None) -> str:
    """The end of the sentence at a step, as the charts write it."""
    said = ""
    for part in now(feed):
        value = feed.value(part["key"], at=at)
        shown = "–" if value is None else percent(value) if part["share"] else number(value, part["digits"])
        said += f"{part['before']}{shown}{part['after']}"
    return said
