"""Make sorted cards of a step's samples: groups with signal first, groups without signal folded. Pure.

A card is a group of completions of one prompt, a preference pair, an example that SFT learns, or an answer that was
only sampled. Each kind has its own ways to be sorted and filtered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from app.chat_text import SHOWN, ends, prompt_view, shortened
from app.llm.microscope import credit
from app.theme import number
from app.tokens import own
from labcore.catalog.amounts import percent
from labcore.catalog.knob import Value

Item = Mapping[str, Any]
STILL = 1e-9  # an advantage that is 0
LONG = 20  # characters of a completion that a row shows whole


@dataclass(frozen=True)
class Sort:
    """`of` says how much of it an item has; the most comes first. Equal items stay in the order of the file."""

    label: str
    of: Callable[[Item], float]


@dataclass(frozen=True)
class Filter:
    label: str
    has: Callable[[Item], bool]
    by_verdict: bool = False


@dataclass(frozen=True)
class Kind:
    """`folds` are items that have nothing to learn from; `folded` says so of some of them, after their number."""

    label: str
    sorts: Mapping[str, Sort]
    filters: Mapping[str, Filter]
    folds: Callable[[Item], bool] = lambda item: False
    folded: str = ""


# ---- measures of an item ---------------------------------------------------------------------------------------


def signal(group: Item) -> float:
    """The signal of a group: the mean size of its completions' advantages."""
    sizes = [_size(each) for each in group["completions"]]
    return sum(sizes) / len(sizes) if sizes else 0.0


def _size(completion: Item) -> float:
    """The mean size of its tokens' advantages."""
    found: list[float | None] = own(completion, completion.get("advantages") or []) or [completion.get("advantage")]
    return sum(abs(each or 0.0) for each in found) / len(found)


def flat(group: Item) -> bool:
    """True if no completion of a group has an advantage, so that nothing is learnt from it."""
    return all(_size(each) < STILL for each in group["completions"])


def equal_rewards(group: Item) -> bool:
    """True if all rewards of a group are the same."""
    rewards = credit.rewards_of(group)
    return len(group["completions"]) > 1 and len(rewards) > 1 and max(rewards) - min(rewards) < STILL


def reward(group: Item) -> float:
    """Its mean reward; below all others where nothing could be scored."""
    rewards = [each["reward"] for each in group["completions"] if each.get("reward") is not None]
    return sum(rewards) / len(rewards) if rewards else -inf


def change(completion: Item) -> float:
    """The change of a completion's log-prob by the updates of the step, nats; 0 where the file does not say."""
    old, new = completion.get("old_logprobs"), completion.get("logprobs")
    return sum(new) - sum(old) if old and new and None not in (*old, *new) else 0.0


def changed(group: Item) -> float:
    """The mean size of that over the completions, nats."""
    return sum(abs(change(each)) for each in group["completions"]) / len(group["completions"])


def _cut(completion: Item) -> list[str]:
    found: list[str] = (completion.get("met") or {}).get("cut") or completion.get("cut") or []
    return found


def clipped(group: Item) -> float:
    """The share of its tokens that the surrogate cut off in the last update; in a file without that, after it."""
    cut = [bool(side) for each in group["completions"] for side in own(each, _cut(each))]
    return sum(cut) / len(cut) if cut else 0.0


def longest(group: Item) -> float:
    """Tokens of its longest completion."""
    return max(len(each.get("tokens") or each["text"]) for each in group["completions"])


def _pair_length(pair: Item) -> float:
    return max(len(pair[side].get("tokens") or pair[side]["text"]) for side in ("chosen", "rejected"))


def _margin(pair: Item) -> float:
    """Its margin; 0 where none was sent."""
    return float(pair["margin"] or 0.0)


def _pair_share(pair: Item) -> float:
    """Its part of the update's gradient."""
    return sum(sum(pair[side].get("share") or [0.0]) for side in ("chosen", "rejected"))


def _loss(example: Item) -> float:
    """Mean −log π per token, nats."""
    return -sum(example["logprobs"]) / len(example["logprobs"]) if example["logprobs"] else 0.0


GROUPS = Kind("Groups", {
    "signal": Sort("Most signal", signal), "best": Sort("Best reward", reward),
    "worst": Sort("Worst reward", lambda group: -reward(group)), "changed": Sort("Most changed", changed),
    "clipped": Sort("Most clipped", clipped), "longest": Sort("Longest", longest),
}, {
    "all": Filter("All", lambda group: True), "signal": Filter("With signal", lambda group: not flat(group)),
    "zero": Filter("Zero variance", equal_rewards), "clipped": Filter("Clipped", lambda group: clipped(group) > 0),
}, flat, "with advantage 0: no gradient from their rewards")

ANSWERS = Kind("Answers", {
    "best": Sort("Best reward", reward), "worst": Sort("Worst reward", lambda group: -reward(group)),
    "longest": Sort("Longest", longest),
}, {
    "all": Filter("All", lambda group: True),
    "right": Filter("Right", lambda group: any(each.get("exact") for each in group["completions"]), True),
    "wrong": Filter("Not right", lambda group: not any(each.get("exact") for each in group["completions"]), True),
})

PAIRS = Kind("Pairs", {
    "low": Sort("Smallest margin", lambda pair: -_margin(pair)),
    "high": Sort("Largest margin", _margin),
    "share": Sort("Largest gradient", _pair_share), "longest": Sort("Longest", _pair_length),
}, {
    "all": Filter("All", lambda pair: True), "wrong": Filter("Margin ≤ 0", lambda pair: _margin(pair) <= 0),
    "right": Filter("Margin > 0", lambda pair: _margin(pair) > 0),
})

EXAMPLES = Kind("Examples", {
    "high": Sort("Highest loss", _loss), "low": Sort("Lowest loss", lambda example: -_loss(example)),
    "longest": Sort("Longest", lambda example: len(example["tokens"])),
}, {"all": Filter("All", lambda example: True)})

KINDS = {"groups": GROUPS, "pairs": PAIRS, "examples": EXAMPLES, "answers": ANSWERS}


def found(samples: Mapping[str, Any]) -> dict[str, Sequence[Item]]:
    """The items of a file by kind, what was learnt from first."""
    groups = samples.get("groups") or []
    credited = any(each.get("advantage") is not None for group in groups for each in group["completions"])
    kinds = {"groups": groups if credited else [], "pairs": samples.get("pairs") or [],
             "examples": samples.get("examples") or [], "answers": [] if credited else groups}
    return {kind: items for kind, items in kinds.items() if items}


def ordered(kind: str, items: Sequence[Item], sort: str) -> list[int]:
    """The places of the items, sorted; those that are folded come last in any order."""
    of, folds = KINDS[kind].sorts[sort].of, KINDS[kind].folds
    return sorted(range(len(items)), key=lambda place: (folds(items[place]), -of(items[place])))


def kept(kind: str, items: Sequence[Item], filter: str) -> list[int]:
    """The places of the items that a filter keeps."""
    return [place for place, item in enumerate(items) if KINDS[kind].filters[filter].has(item)]


def filters(kind: str, items: Sequence[Item]) -> list[tuple[str, Filter]]:
    """The filters of a kind; by verdicts only where there are any."""
    judged = any(each.get("exact") is not None for item in items for each in item.get("completions", []))
    return [(key, filter) for key, filter in KINDS[kind].filters.items() if judged or not filter.by_verdict]


def telling(kind: str, items: Sequence[Item]) -> tuple[int, int]:
    """The item and its completion that say the most: first in the first order, with the largest advantage."""
    first = ordered(kind, items, next(iter(KINDS[kind].sorts)))[0]
    completions = items[first].get("completions", [])
    return first, max(range(len(completions)), key=lambda place: _size(completions[place]), default=0)


# ---- what a card says ------------------------------------------------------------------------------------------


def card(kind: str, item: Item, knobs: Mapping[str, Value]) -> dict[str, Any]:
    """A card for the browser."""
    if kind == "pairs":
        sides = [{"role": side, **_written(item[side]["text"]), "at": 0} for side in ("chosen", "rejected")]
        margin = item["margin"]
        return {"asked": prompt_view(item), "answer": "", "rows": sides, "mark": "",
                "facts": "" if margin is None else f"margin {number(margin, 2)}{' · tie' if item.get('tie') else ''}",
                "sign": 0 if margin is None else (margin > 0) - (margin < 0)}
    if kind == "examples":
        return {"asked": prompt_view(item), "answer": "", "facts": f"loss {number(_loss(item), 3)} nats/token",
                "rows": [{**_written(item["text"]), "at": 0}], "mark": ""}
    return {"asked": prompt_view(item), "answer": shortened(item.get("answer") or "", SHOWN), "plays": _plays(item),
            "facts": _facts(item), "rows": _rows(item, knobs), "mark": "zero variance" if equal_rewards(item) else ""}


def _plays(group: Item) -> bool:
    """Whether its completions are episodes."""
    return any("turns" in each for each in group["completions"])


def _written(text: str) -> dict[str, Any]:
    """A completion in a row: in full if it is short, otherwise its first and last line."""
    long = len(text) > LONG or "\n" in text
    return {"text": "" if long else text, "ends": list(ends(text)) if long else []}


def _facts(group: Item) -> str:
    """Its rewards in a few words."""
    rewards = credit.rewards_of(group)
    if len(group["completions"]) == 1 or not rewards:
        return ""
    judged = [bool(each["exact"]) for each in group["completions"] if each.get("exact") is not None]
    right = "solved" if _plays(group) else "right"
    parts = [f"{sum(judged)} of {len(judged)} {right}"] if judged else []
    parts.append(f"reward {number(credit.mean(rewards), 2)} ± {number(credit.spread(rewards), 2)}")
    return " · ".join([*parts, *([f"{percent(share)} clipped"] if (share := clipped(group)) else [])])


def _rows(group: Item, knobs: Mapping[str, Value]) -> list[dict[str, Any]]:
    """The distinct completions of a group, sorted by advantage, then by reward; equal completions share a row."""
    same: dict[tuple[Any, ...], list[int]] = {}
    for place, each in enumerate(group["completions"]):
        key = (each["text"], bool(each.get("truncated")), credit.earned(each), each.get("advantage"))
        same.setdefault(key, []).append(place)
    rows = [_row(group, places, knobs) for places in same.values()]
    return sorted(rows, key=lambda row: (-(row["advantage"] or 0.0), -(row["earned"] or 0.0)))


def _row(group: Item, places: list[int], knobs: Mapping[str, Value]) -> dict[str, Any]:
    completion = group["completions"][places[0]]
    return {"at": places[0], "same": places, "count": len(places), **_written(completion["text"]),
            "cut": bool(completion.get("truncated")), "exact": completion.get("exact"),
            "earned": credit.earned(completion), "baseline": credit.baseline(group, completion, knobs),
            "advantage": completion.get("advantage"), "change": change(completion),
            "left_out": bool(completion.get("left_out")),
            "clipped": sum(map(bool, _cut(completion)))}
