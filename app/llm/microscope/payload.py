"""Build the data of the component: the cards with their orders, and the chosen completion token by token. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from math import exp
from typing import Any

from app import tokens
from app.chat_text import in_one_line, parts, thought
from app.llm import reward_parts, sample_age
from app.llm.microscope import arithmetic, cards, credit
from app.llm.microscope.lines import Line
from app.theme import number
from app.tokens import VIEWS
from labcore.catalog.amounts import percent
from labcore.catalog.knob import Value

Knobs = Mapping[str, Value]
DIGITS = 7  # of a token's number
LONGEST_READ = 120  # characters of the teacher's prompt
SMALL = -7.0  # nats: a tenth of a percent
# By which of `VIEWS` the tokens of a kind can be coloured, the usual one first.
CREDITED = ("teacher", "share", "ratio", "advantages", "slope", "logprobs", "k3", "entropy", "values", "step_scores",
            "step_gold")
GIVEN = {"pairs": ("apart", "share", "logprobs", "entropy"), "examples": ("teacher", "loss", "share", "entropy"),
         "answers": ("logprobs",), "groups": CREDITED}


def shelf(kind: str, items: Sequence[cards.Item], knobs: Knobs) -> dict[str, Any]:
    """The cards of a kind, in each order, by each filter, and which are folded."""
    of = cards.KINDS[kind]
    earned = [reward for item in items for each in item.get("completions", [])
              if (reward := credit.earned(each)) is not None]
    return {"cards": [cards.card(kind, item, knobs) for item in items],
            "sorts": [[key, sort.label, cards.ordered(kind, items, key)] for key, sort in of.sorts.items()],
            "filters": [[key, each.label, cards.kept(kind, items, key)] for key, each in cards.filters(kind, items)],
            "folds": [place for place, item in enumerate(items) if of.folds(item)], "folded": of.folded,
            "range": [min(earned, default=0.0), max(earned, default=0.0)]}


def inside(kind: str, item: cards.Item, place: int, when: str, knobs: Knobs) -> dict[str, Any]:
    """The chosen item: its tokens with their numbers and formulas, and a line about the whole item."""
    if kind == "pairs":
        sides = [_side(item[role], role, GIVEN[kind], lambda i, role=role: arithmetic.of_side(item[role], i))
                 for role in ("chosen", "rejected")]
        said = "" if item["margin"] is None else f"margin {number(item['margin'], 3)}"
        said += " · a tie: both sides have the same reward" if item.get("tie") else ""
        return _shown(sides, _plainly(arithmetic.of_pair(item, knobs)), said)
    if kind == "examples":
        return _shown([_side(item, "", GIVEN[kind], lambda i: arithmetic.of_example(item, i, knobs))], [], "")
    whole = item["completions"][place]
    completion = arithmetic.at(whole, when)
    side = _side(completion, "", GIVEN[kind], lambda i: arithmetic.lines(item, completion, i, knobs))
    has_met = arithmetic.has_met(whole)
    return _shown([side], [], _said(item, whole, knobs)) | {"moments": has_met, "when": when if has_met else ""}


def _said(group: cards.Item, completion: Mapping[str, Any], knobs: Knobs) -> str:
    """A completion's reward, what it is compared with, and how the updates changed its probability."""
    reward, against = credit.earned(completion), credit.baseline(group, completion, knobs)
    made = reward_parts.said(completion)
    said = [] if reward is None else [f"reward {number(reward, 3)}" + (f" ({made})" if made else "")]
    said += [] if against is None else [f"baseline {number(against, 3)}"]
    if completion.get("slope") and not arithmetic.has_met(completion):
        said.append("recorded after the step, without the values during its updates")
    if read := completion.get("teacher_sees"):
        said.append(f"the teacher reads “{in_one_line(read, LONGEST_READ)}”")
    if completion.get("left_out"):
        said.append("excluded by the selection, so the policy does not learn from it")
    said += [f"level {group['level']}"] if "level" in group else []
    said.append(sample_age.said(group))
    logprobs = [found or [None] for found in (sample_age.before(group, completion), completion.get("logprobs"))]
    if None not in (*logprobs[0], *logprobs[1]):
        before, after = map(sum, logprobs)
        said.append(_moved(before, after))
    return " · ".join(filter(None, said))


def _moved(before: float, after: float) -> str:
    """A completion's log-prob before and after the updates of the step: as probabilities where they are large enough.

    >>> _moved(-1.0, -0.5), _moved(-20.0, -21.5)
    ('probability before → after the update: 37 % → 61 %', 'log-prob before → after the update: −20.0 → −21.5 nats')
    """
    if max(before, after) < SMALL:
        return f"log-prob before → after the update: {number(before, 1)} → {number(after, 1)} nats"
    first, last = (percent(exp(min(0.0, value))) for value in (before, after))
    return f"probability before → after the update: {first} → {last}"


def _shown(sides: list[dict[str, Any]], summary: list[dict[str, Any]], said: str) -> dict[str, Any]:
    keys = [key for key in (sides[0]["order"] if sides else ()) if any(side["values"].get(key) for side in sides)]
    return {"sides": sides, "summary": summary, "said": said, "moments": False, "when": "",
            "views": [[key, view.label, view.unit, view.signed, view.centre] for key in keys for view in [VIEWS[key]]]}


def _side(completion: Mapping[str, Any], role: str, order: Sequence[str], lines: Any) -> dict[str, Any]:
    """One completion: its tokens, and by token their numbers and their lines, whose constant parts are `shapes`.

    An empty token continues the character before it. `thought` are the tokens of its thinking. A completion with
    unknown tokens has `parts`, its text.
    """
    texts = completion.get("tokens") or []
    shapes: dict[Line, int] = {}
    observed = completion.get("observed") or [False] * len(texts)
    packed = [[] if other else [_packed(line, shapes) for line in lines(place)] for place, other in enumerate(observed)]
    return {"role": role, "text": completion["text"], "order": list(order),
            "parts": [] if texts else [*map(list, parts(completion["text"]))],
            "cut_off": bool(completion.get("truncated")), "thought": thought(texts),
            "tokens": [tokens.signs(text) for text in texts], "cut": completion.get("cut") or [],
            "observed": completion.get("observed") or [],
            "values": {key: [None if value is None else round(value, DIGITS) for value in values]
                       for key in order if (values := VIEWS[key].values(completion))},
            "lines": packed, "shapes": _plainly(shapes)}


def _packed(line: Line, shapes: dict[Line, int]) -> list[Any]:
    """A line as the number of its shape, and what changes from token to token; a new shape is added to `shapes`."""
    shape = replace(line, worked="", result="", note="")
    return [shapes.setdefault(shape, len(shapes)), line.worked, line.result, line.note]


def _plainly(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """Lines without what is empty."""
    return [{key: value for key, value in asdict(line).items() if value} for line in lines]
