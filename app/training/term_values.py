"""The numbers of an equation's terms at a step: knobs, metrics, and the values at the tokens of one completion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from app import tokens
from app.chat_text import in_one_line
from app.theme import metric_text, number, symbol
from app.tokens import VIEWS, View
from app.training import files, terms
from app.training.feed import Feed
from app.training.terms import Term
from labcore.catalog.algorithm import Algorithm
from labcore.catalog.knob import Knob, Value, shown
from labcore.catalog.metrics import METRICS

MOST = 32  # tokens of the completion that is drawn
SAID = 3  # metrics beside a term
DURING_UPDATES = ("ratio/max",)  # a token's number is of the policy after them: side by side they would not agree


def payload(row: Algorithm, feed: Feed, values: Mapping[str, Value], samples: dict[str, Any] | None,
            step: int) -> dict[str, Any]:
    """The data of the component: each term with its numbers at `step`, knobs beside the equation, and the tokens.

    `samples` are those of `step` or of an earlier one, which is then named.
    """
    samples, found = samples or {}, terms.of(row)
    group, completion = strongest_completion(samples)
    strips = _strips(found, completion)
    values = {**values, **_annealed(row, values, feed.spec.steps, step)}
    shown = [{**_term(term, row, feed, values, samples, step), "colour": terms.colour(place)}
             for place, term in enumerate(found)]
    return {"step": step, "terms": shown, "beside": [_beside(knob, values) for knob in terms.knobs_beside(row)],
            "strips": strips, "pair": _pair(samples), "source": _source(samples, group, completion, step)}


def _term(term: Term, row: Algorithm, feed: Feed, values: Mapping[str, Value], samples: dict[str, Any],
          step: int) -> dict[str, Any]:
    """One term: its letter, its name, its number, and the metrics that belong to it."""
    knob = next((each for each in row.knobs if each.key == term.knob), None)
    numbers = {metric: words for metric in (*term.own, *term.about) if (words := _metric(metric, feed, step)) and
               not (term.ranges and metric in DURING_UPDATES)}
    own = next((numbers[metric] for metric in term.own if metric in numbers), "")
    now = _knob(knob, values) if knob else _reach(samples, VIEWS[term.view]) if term.ranges else own
    return {"key": term.key, "sign": terms.html(term), "label": term.label, "now": now, "knob": term.knob,
            "panel": term.panel(row), "view": term.view,
            "more": [f"{METRICS[metric].label} {numbers[metric]}" for metric in term.about if metric in numbers][:SAID]}


def _annealed(row: Algorithm, values: Mapping[str, Value], steps: int, step: int) -> dict[str, Value]:
    """The knobs that have fallen on their way to 0, as the updates of a step had them, and from what: words."""
    left = 1 - max(0, step - 1) / steps if values.get("anneal") else 1.0
    return {knob.key: f"{shown(float(f'{float(value) * left:.3g}'))}, annealed from {shown(value)}"
            for knob in row.knobs if knob.annealed and left < 1 and (value := values.get(knob.key))}


def _beside(knob: Knob, values: Mapping[str, Value]) -> dict[str, str]:
    """A knob without a letter in the equation."""
    return {"key": knob.key, "sign": symbol(knob.symbol), "label": knob.label, "now": _knob(knob, values),
            "knob": knob.key}


def _knob(knob: Knob, values: Mapping[str, Value]) -> str:
    """A knob's value with its unit."""
    return f"{plain(values.get(knob.key, knob.default))} {knob.unit}".strip()


def plain(value: Value) -> str:
    """A knob's value as a plain number or word.

    >>> plain(10.0), plain(2e-05), plain("reward_to_go"), plain(2000)
    ('10', '2e−5', 'reward to go', '2,000')
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return shown(value).replace("_", " ").replace("e-0", "e−") if isinstance(value, str | float) else shown(value)


def _metric(key: str, feed: Feed, step: int) -> str:
    """A metric's value at a step with its unit, shares in percent; empty where it has none."""
    metric, value = METRICS[key], feed.value(key, at=step)
    if value is None:
        return ""
    unit = "" if metric.share or metric.unit == metric.label.lower() else metric.unit
    return f"{metric_text(metric, value)} {unit}".strip()


def _reach(samples: dict[str, Any], view: View) -> str:
    """The range of a token's number over all completions that were kept of a step; empty where it has none."""
    found = [value for group in samples.get("groups", []) for each in group["completions"]
             for value in view.values(each) if value is not None]
    if not found:
        return ""
    low, high = number(min(found), 2), number(max(found), 2)
    unit = f" {view.unit}" if view.unit and not view.centre else ""
    return (low if low == high else f"{low} to {high}") + unit


def strongest_completion(samples: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The completion with the most signal, and its group: the largest advantage, then the ratio farthest from 1, then
    the least probable token. Both empty where there is none."""
    found = [(group, each) for group in samples.get("groups", []) for each in group["completions"]
             if each.get("tokens")]
    return max(found, key=lambda pair: _signal(pair[1]), default=({}, {}))


def _signal(completion: dict[str, Any]) -> list[float]:
    return [max((abs(value - centre) for value in completion.get(key) or [] if value is not None), default=0.0)
            for key, centre in (("advantages", 0.0), ("ratio", 1.0), ("logprobs", 0.0))]


def _strips(found: Iterable[Term], completion: dict[str, Any]) -> dict[str, list[str]]:
    """The completion's tokens coloured by each number that goes with a term: by view the HTML, and what is seen."""
    part = {**completion, "tokens": completion.get("tokens", [])[:MOST]}
    wanted = dict.fromkeys(term.view for term in found if term.view)
    return {view: [tokens.strip(part, VIEWS[view]), _seen(VIEWS[view], part)] for view in wanted
            if any(value is not None for value in VIEWS[view].values(completion))}


def _seen(view: View, completion: dict[str, Any]) -> str:
    """The numbers of a strip."""
    cut = "; dashed: clipped" if any(completion.get("cut") or []) else ""
    return f"{view.label}{f', {view.unit},' if view.unit else ''} of each token{cut}. "


def _pair(samples: dict[str, Any]) -> str:
    """The preference pair that the loss pulls at most: the one with the smallest margin. HTML."""
    pairs = samples.get("pairs")
    return tokens.pair_table([min(pairs, key=lambda pair: pair["margin"])]) if pairs else ""


def _source(samples: dict[str, Any], group: dict[str, Any], completion: dict[str, Any], step: int) -> str:
    """The source of the tokens, as HTML."""
    if samples.get("pairs"):
        return f"{files.of_step(samples['step'], step)}: the pair with the smallest margin, where the loss pulls most"
    if not completion:
        return ""
    count, reward = len(completion["tokens"]), completion.get("reward")
    scored = f", reward {number(reward, 2)}" if reward is not None else ""
    cut = f", the first {MOST} of its {count:,} tokens" if count > MOST else ""
    part = f"; ranges over {groups}" if (groups := files.of_groups(samples)) else ""
    prompt = tokens.readable(in_one_line(group["prompt"], 80))
    return (f"{files.of_step(samples['step'], step)}: a completion of <code>{prompt}</code>{scored}{cut}{part}")
