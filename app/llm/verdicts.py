"""Group long completions of a prompt into bands by verdict or reward, and count a step's samples in each band. Pure.

No two long completions are alike, so the probability of a single one says nothing. The probability of a verdict does:
it is estimated by its share of the samples, which come from the policy before the step's updates. The change of the
completions' log-probs shows the effect of the updates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from app.chat_text import ends, parts
from app.llm import reward_parts
from app.llm.history import LONG, Column, Sample
from app.llm.story_words import judged
from app.theme import number

FEW = 3  # different rewards that are a band each; of more the range is cut into as many bands
UNSCORED = "not scored"
STILL = 0.005  # nats: a smaller change is none, as rounding makes such ones without any update
Group = dict[str, Any]


@dataclass(frozen=True)
class Band:
    """Answers that are judged alike. `exact` is their verdict, None where it is their reward."""

    label: str
    exact: bool | None
    has: Callable[[bool | None, float | None], bool]


def grouped(group: Group) -> bool:
    """True if most samples of a group are long, or no sample has a known probability. The two sides of a pair are never
    grouped."""
    answers = group["answers"]
    if any(answer.get("role") for answer in answers):
        return False
    long = sum(answer["count"] for answer in answers if len(answer["text"]) > LONG or "\n" in answer["text"])
    known = any(answer["logprob_before"] is not None or answer["logprob_after"] is not None for answer in answers)
    return 2 * long > sum(answer["count"] for answer in answers) or not known


def samples_of(group: Group) -> list[Sample]:
    return [Sample(answer["exact"], answer["reward"], answer["count"]) for answer in group["answers"]
            if answer["count"]]


def _judged_so(wanted: bool, exact: bool | None, reward: float | None) -> bool:
    return exact == wanted


def _rewarded_so(wanted: float, exact: bool | None, reward: float | None) -> bool:
    return reward == wanted


def bands(samples: Sequence[Sample]) -> list[Band]:
    """Group by verdict; by reward if there is no verdict, or if all verdicts are equal and the rewards are not."""
    verdicts = {sample.exact for sample in samples} - {None}
    rewards = sorted({sample.reward for sample in samples if sample.reward is not None}, reverse=True)
    if verdicts and (len(verdicts) == 2 or len(rewards) < 2):
        return [Band(label, verdict, partial(_judged_so, verdict))
                for label, verdict in (("right", True), ("wrong", False))]
    if len(rewards) <= FEW:
        known = [Band(f"reward {_plain(each)}", None, partial(_rewarded_so, each)) for each in rewards]
    else:
        edges = [rewards[-1] + (rewards[0] - rewards[-1]) * place / FEW for place in range(FEW, -1, -1)]
        known = [_between(low, high, first=place == 0) for place, (high, low) in enumerate(pairwise(edges))]
    unknown = any(sample.reward is None for sample in samples)
    return [*known, *([Band(UNSCORED, None, lambda _, reward: reward is None)] if unknown else [])]


def _between(low: float, high: float, first: bool) -> Band:
    """Rewards from `low` up to `high`, which belongs to the highest band alone."""
    return Band(f"reward {_plain(low)} to {_plain(high)}", None, lambda _, reward: reward is not None and (
        low <= reward <= high if first else low <= reward < high))


def _plain(reward: float) -> str:
    return f"{reward:z.2f}".rstrip("0").rstrip(".").replace("-", "−")


def payload(group: Group, columns: Sequence[Column]) -> dict[str, Any]:
    """The data of a group: its bands with their answers, and their shares over the steps.

    `change` is the mean log-prob after the updates less that before, nats; `reach` the largest of them.
    """
    sampled = [column for column in columns if column.sampled]
    found = bands([*samples_of(group), *(sample for column in sampled for sample in column.sampled)])
    drawn = [_drawn(band, group, sampled) for band in found]
    changes = [abs(each["change"]) for band in drawn for each in (band, *band["answers"]) if each["change"] is not None]
    return {"verdicts": drawn, "rows": [], "low": 0, "reach": max(changes, default=0.0) or 1.0,
            "columns": [column.step for column in sampled], "sentence": sentence(group, found)}


def _drawn(band: Band, group: Group, columns: Sequence[Column]) -> dict[str, Any]:
    answers = _of(band, group)
    count = sum(answer["count"] for answer in answers)
    return {"text": band.label, "exact": band.exact, "cut": False, "rest": False, "count": count,
            "limited": sum(answer["count"] for answer in answers if answer.get("truncated")),
            **{key: _mean(answers, key) for key in ("reward", "advantage")}, "change": _change(answers),
            "cells": [_share(band, column.sampled) for column in columns],
            "answers": [_answer(each) for each in sorted(answers, key=lambda each: -(each["advantage"] or 0.0))]}


def _of(band: Band, group: Group) -> list[dict[str, Any]]:
    """The band's answers of this step."""
    return [answer for answer in group["answers"] if answer["count"] and band.has(answer["exact"], answer["reward"])]


def _answer(answer: dict[str, Any]) -> dict[str, Any]:
    first, last = ends(answer["text"])
    before, after = answer["logprob_before"], answer["logprob_after"]
    said = [number(value, 1) for value in (before, after) if value is not None]
    return {"first": first, "last": last, "parts": [*map(list, parts(answer["text"]))], "count": answer["count"],
            "cut": bool(answer.get("truncated")), "reward": answer["reward"], "advantage": answer["advantage"],
            "change": _change([answer]), "said": said, "earned": reward_parts.said(answer)}


def _share(band: Band, samples: Sequence[Sample]) -> float:
    return round(sum(each.times for each in samples if band.has(each.exact, each.reward))
                 / sum(each.times for each in samples), 5)


def _mean(answers: Sequence[dict[str, Any]], key: str) -> float | None:
    """The mean over the samples that have it."""
    known = [(answer[key], answer["count"]) for answer in answers if answer[key] is not None]
    return sum(value * count for value, count in known) / sum(count for _, count in known) if known else None


def _change(answers: Sequence[dict[str, Any]]) -> float | None:
    """The mean change of the log-prob of some answers' samples by the updates, nats; 0 below STILL."""
    known = [(answer["logprob_after"] - answer["logprob_before"], answer["count"]) for answer in answers
             if answer["logprob_after"] is not None and answer["logprob_before"] is not None]
    if not known:
        return None
    change = sum(value * count for value, count in known) / sum(count for _, count in known)
    return change if abs(change) >= STILL else 0.0


# ---- in words --------------------------------------------------------------------------------------------------


def sentence(group: Group, found: Sequence[Band]) -> str:
    """The verdicts on the samples, and the updates' effect on the log-probs of the highest and the lowest band."""
    answers = [answer for answer in group["answers"] if answer["count"]]
    said = judged(answers, sum(answer["count"] for answer in answers))
    moves = [f"that of the {_named(band, some)} {_moved(change)}" for band in found
             if (change := _change(some := _of(band, group))) is not None]
    if not moves:
        return said
    told = ", ".join(dict.fromkeys((moves[0], moves[-1]))).removeprefix("that")
    return f"{said} After the update the mean log-prob{told}.".strip()


def _named(band: Band, answers: Sequence[dict[str, Any]]) -> str:
    if band.exact is not None:
        return f"{band.label} one{'s' * (sum(answer['count'] for answer in answers) != 1)}"
    return f"answers {'' if band.label == UNSCORED else 'with '}{band.label}"


def _moved(change: float) -> str:
    """
    >>> _moved(0.3), _moved(-1.234), _moved(0.0)
    ('rises by 0.30 nats', 'falls by 1.23 nats', 'stays')
    """
    if not change:
        return "stays"
    return f"{'rises' if change > 0 else 'falls'} by {number(abs(change), 2)} nats"
