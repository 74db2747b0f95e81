"""The layouts of people's data files, read as one: TRL's, verl's, OpenRLHF's, alpaca's, ShareGPT's, GSM8K's, MATH's.

    prompt        a text or a list of turns; also question, problem, instruction (+ input), input, or the turns before
                  the last answer of messages or conversations
    answer        also solution, output, completion, label (a text), reward_model.ground_truth, the last assistant turn
    chosen, rejected    texts, turns, or whole conversations whose common beginning is the prompt
    completion, label   one completion and whether it is desired: true, false, 1, 0
    reference     of a pair: the answer that is right beside both sides, as TRL's TPO has it; also answer

`names` says which of a file's own fields stand for these; `system` is a system turn. All other fields stay with the
row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from labcore.errors import LabError, quoted
from labcore.tasks.task import Turn, Turns

ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "model": "assistant",
         "system": "system", "tool": "tool"}
PROMPTS = ("prompt", "question", "problem", "instruction", "input")
ANSWERS = ("answer", "solution", "output", "completion", "label", "ground_truth")
OWN_ANSWERS = ("reference", "answer")  # of a pair
CONVERSATIONS = ("messages", "conversations")
FIELDS = ("prompt", "answer", "chosen", "rejected", "completion", "label", "system")  # that `names` may rename
SPEAKERS = ("\n\nHuman:", "\n\nAssistant:")  # of Anthropic's HH
LABELS = {True: True, False: False, "true": True, "false": False, "1": True, "0": False}


@dataclass(frozen=True)
class Entry:
    """One row as understood. `prompt` is what the user said last, and `turns` the conversation up to the answer where
    it is more than that. What the row does not have is None; `columns` are its other fields. Of a `whole` conversation
    every turn of the assistant is to be learnt, not the last one alone."""

    prompt: str
    turns: Turns = ()
    answer: str | None = None
    chosen: str | None = None
    rejected: str | None = None
    completion: str | None = None
    label: bool | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    whole: bool = False


def entry(value: Mapping[str, Any], place: str, names: Mapping[str, str] | None = None,
          labelled: bool = False) -> Entry:
    """The row `value`, which stands at `place`, such as "line 3 of data.jsonl"; of a file of preferences a
    completion is `labelled`, and sides count though there is an answer. Raises LabError if no layout fits it, or a
    field is not what its layout needs."""
    row = _Row(value, place, names or {})
    if ("chosen" in row or "rejected" in row) and (labelled or "answer" not in row):
        return _pair(row)
    explicit = any(name in row for name in PROMPTS) and any(name in row for name in ("answer", "completion"))
    turns = None if explicit else row.conversation()
    if turns is not None:
        return _from_turns(row, turns, last_is_answer=True)
    asked = row.asked()
    if "completion" in row and labelled:
        return _entry(row, asked, completion=row.answer_of("completion"), label=row.label())
    answer = row.answer()
    return _entry(row, asked, answer=answer)


def own_answer(value: Mapping[str, Any], place: str) -> str:
    """The answer of a pair that is neither of its sides, in a row with the names of the layouts; "" where it has none.
    Raises LabError where it is no text."""
    row = _Row(value, place, {})
    found = row.take(OWN_ANSWERS)
    return "" if found is None else row.said(*found)


def renamed(value: Mapping[str, Any], place: str, names: Mapping[str, str]) -> Mapping[str, Any]:
    """The row with the user's field names replaced by those of the layouts: `names` maps a name of the layouts to the
    user's. Raises LabError if a field is missing."""
    if not names:
        return value
    for name, own in names.items():
        if own not in value:
            raise LabError(f"{place[:1].upper()}{place[1:]} has no field {own!r} for the {name}: it has "
                           f"{_named(value)}.")
    theirs = set(names.values())
    return {**{key: found for key, found in value.items() if key not in theirs and key not in names},
            **{name: value[own] for name, own in names.items()}}


def is_conversation(value: Mapping[str, Any], names: Mapping[str, str]) -> bool:
    """True if the prompt of a row stands in its file as a list of turns, be it of one turn.

    >>> is_conversation({"prompt": [{"role": "user", "content": "a"}]}, {}), is_conversation({"prompt": "a"}, {})
    (True, False)
    """
    return any(isinstance(value.get(name), list) for name in (names.get("prompt", ""), *PROMPTS, *CONVERSATIONS))


def names_of(knobs: Mapping[str, Any]) -> dict[str, str]:
    """The fields that the knob `fields` names, such as "prompt=question,answer=solution". Raises LabError if the knob
    is not written in this form."""
    found = {}
    for part in filter(None, map(str.strip, str(knobs.get("fields", "")).split(","))):
        name, equals, own = (piece.strip() for piece in part.partition("="))
        if name not in FIELDS or not equals or not own:
            raise LabError(f"The field names {quoted(part)} cannot be used: write name=field, where name is one of "
                           f"{', '.join(FIELDS)}.")
        found[name] = own
    return found


class _Row:
    """The fields of a row that nothing has taken yet."""

    def __init__(self, value: Mapping[str, Any], place: str, names: Mapping[str, str]):
        self.left, self.place, self.all = {**renamed(value, place, names)}, place, [*value]

    def __contains__(self, name: str) -> bool:
        return self.left.get(name) is not None

    def fault(self, what: str) -> LabError:
        return LabError(f"{self.place[:1].upper()}{self.place[1:]} {what}.")

    def take(self, names: Sequence[str]) -> tuple[str, Any] | None:
        """The first of these fields that is there, with its name."""
        name = next((name for name in names if name in self), None)
        return None if name is None else (name, self.left.pop(name))

    def asked(self) -> Turns:
        """The prompt as turns; a text is one turn of the user."""
        found = self.take(PROMPTS)
        if found is None:
            raise self.fault(f"has no field {' or '.join(map(repr, PROMPTS[:3]))}: add it, or name it with --map "
                             f"prompt=FIELD (it has {_named(self.all)})")
        name, content = found
        turns = self.turns(name, content) if isinstance(content, list) else (Turn("user", self.text(name, content)),)
        if turns[-1].role == "assistant":
            raise self.fault(f"has a {name!r} that ends with a turn of the assistant: end it with the user's, and give "
                             "the assistant's as the answer")
        if name == "instruction" and "input" in self:
            more = self.text("input", self.left.pop("input"))
            turns = (Turn("user", f"{turns[0].content}\n\n{more}" if more else turns[0].content),)
        return turns

    def answer(self) -> str | None:
        judged = self.left.get("reward_model")
        if isinstance(judged, dict) and "ground_truth" in judged:
            return self.text("reward_model.ground_truth", self.left.pop("reward_model")["ground_truth"])
        found = self.take(ANSWERS)
        return None if found is None else self.said(*found)

    def answer_of(self, name: str) -> str:
        return self.said(name, self.left.pop(name))

    def said(self, name: str, content: Any) -> str:
        """A text, or a list of one assistant turn."""
        if not isinstance(content, list):
            return self.text(name, content)
        turns = self.turns(name, content)
        if len(turns) != 1 or turns[0].role != "assistant":
            raise self.fault(f"has {len(turns)} turns in {name!r}, where one turn of the assistant is needed: move the "
                             "others into the prompt")
        return turns[0].content

    def label(self) -> bool:
        content = self.left.pop("label", None)
        if isinstance(content, str):
            content = content.lower()
        if isinstance(content, (list, dict)) or content not in LABELS:
            raise LabError(f"The label in {self.place} is {quoted(content)}: write true for a desired completion, "
                           "false for one that is not.")
        return LABELS[content]

    def conversation(self) -> Turns | None:
        found = self.take(CONVERSATIONS)
        return None if found is None else self.turns(*found)

    def turns(self, name: str, content: Any) -> Turns:
        """A list of turns, by role and content or by from and value."""
        if not isinstance(content, list) or not content:
            raise self.fault(f"has a {name!r} that is no list of turns: write [{{\"role\": \"user\", \"content\": …}}]")
        found = []
        for number, turn in enumerate(content, start=1):
            given = turn if isinstance(turn, dict) else {}
            role, said = given.get("role", given.get("from")), given.get("content", given.get("value"))
            if role not in ROLES or not isinstance(said, str):
                raise self.fault(f"has a turn {number} of {name!r} without a text or a role ({', '.join(ROLES)}): "
                                 "correct it")
            found.append(Turn(ROLES[role], said))
        return self.whole(name, tuple(found))

    def whole(self, name: str, turns: Turns) -> Turns:
        """The turns of a conversation, of which the assistant's all have a text."""
        number = next((number for number, turn in enumerate(turns, start=1)
                       if turn.role == "assistant" and not turn.content.strip()), 0)
        if number:
            raise self.fault(f"has an empty turn of the assistant, turn {number} of {name!r}: write its text")
        return turns

    def text(self, name: str, content: Any) -> str:
        if isinstance(content, bool) or not isinstance(content, (str, int, float)):
            kinds = {list: "a list", dict: "an object", bool: "a true or false", type(None): "a null"}
            kind = kinds.get(type(content), "no text")
            raise LabError(f"The field {name!r} in {self.place} is {kind}: write it as a text in quotes.")
        return str(content)


def _named(fields: Iterable[str]) -> str:
    return ", ".join(map(repr, islice(fields, 12))) or "no fields"


def _pair(row: _Row) -> Entry:
    missing = next((name for name in ("chosen", "rejected") if name not in row), None)
    if missing:
        raise row.fault(f"has no field {missing!r}: a pair needs both sides")
    chosen, rejected = (row.left.pop(name) for name in ("chosen", "rejected"))
    prompted = any(name in row for name in PROMPTS)
    if isinstance(chosen, list) and isinstance(rejected, list):
        sides = [row.turns("chosen", chosen), row.turns("rejected", rejected)]
    else:
        sides = _texts(row, row.text("chosen", chosen), row.text("rejected", rejected), prompted)
    if any(side[-1].role != "assistant" for side in sides):
        raise row.fault("has a side that does not end with the assistant's turn: remove what comes after it")
    shared = _common(*sides)
    if any(len(side) != shared + 1 for side in sides):
        raise row.fault("has sides that differ before their last turn: a pair is two answers to one prompt")
    asked = sides[0][:shared]
    if prompted:
        prompt = row.asked()
        asked = asked or prompt
    if not asked:
        raise row.fault(f"has no prompt that both sides begin with: add the field 'prompt' (it has {_named(row.all)})")
    return _entry(row, asked, chosen=sides[0][-1].content, rejected=sides[1][-1].content)


def _texts(row: _Row, chosen: str, rejected: str, prompted: bool) -> list[Turns]:
    """Two sides given as texts: conversations, answers, or without a prompt of their own texts whose common beginning
    is the prompt, but for a space at its end, as TRL takes it."""
    sides = [_spoken(chosen), _spoken(rejected)]
    if any(len(side) > 1 for side in sides):
        return [row.whole(name, side) for name, side in zip(("chosen", "rejected"), sides, strict=True)]
    if prompted:
        return sides
    pairs = enumerate(zip(chosen, rejected, strict=False))
    shared = next((place for place, (a, b) in pairs if a != b), min(len(chosen), len(rejected)))
    shared -= shared > 0 and chosen[shared - 1] == " "
    asked = (Turn("user", chosen[:shared]),) if shared else ()
    return [(*asked, Turn("assistant", text[shared:])) for text in (chosen, rejected)]


def _spoken(text: str) -> Turns:
    """The turns of a conversation in Anthropic's layout; any other text is one turn of the assistant."""
    human, assistant = SPEAKERS
    if not text.startswith(human) or assistant not in text:
        return (Turn("assistant", text),)
    found, rest = [], text
    while rest:
        role, mark = ("user", human) if rest.startswith(human) else ("assistant", assistant)
        rest = rest[len(mark):]
        ends = [at for at in map(rest.find, SPEAKERS) if at >= 0]
        said, rest = (rest[:min(ends)], rest[min(ends):]) if ends else (rest, "")
        found.append(Turn(role, said.strip()))
    return tuple(found)


def _common(one: Turns, other: Turns) -> int:
    """The number of turns that both begin with, their last turns aside."""
    pairs = zip(one[:-1], other[:-1], strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)) - 1)


def _from_turns(row: _Row, turns: Turns, last_is_answer: bool) -> Entry:
    answered = last_is_answer and turns[-1].role == "assistant"
    if answered and len(turns) == 1:
        raise row.fault("has an answer without a prompt: put the user's turn before it")
    return _entry(row, turns[:-1] if answered else turns, answer=turns[-1].content if answered else row.answer(),
                  whole=answered)


def _entry(row: _Row, turns: Turns, **given: Any) -> Entry:
    if (system := row.take(("system",))) and (said := row.text(*system)):
        turns = (Turn("system", said), *turns)
    prompt = next((turn.content for turn in reversed(turns) if turn.role == "user"), turns[-1].content)
    if not prompt:
        raise row.fault("has an empty prompt: write something to answer")
    alone = len(turns) == 1 and turns[0].role == "user"
    return Entry(prompt, () if alone else turns, columns=row.left, **given)
