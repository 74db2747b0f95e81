"""Describe a row of the user's file: the name of its layout, the role of each field, and the fields that are only
passed on."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from labcore.tasks.layouts import ANSWERS, CONVERSATIONS, PROMPTS, Entry, entry, renamed

_TURNS = "turns"  # what stands behind a field's name whose value is a list of turns
# The layout of a row that has all of these fields; the first that fits.
_LAYOUTS: tuple[tuple[Set[str], str], ...] = (
    ({"chosen turns", "rejected turns", "prompt"}, "UltraFeedback: a prompt, and two whole conversations"),
    ({"chosen turns", "rejected turns"}, "TRL, conversational preferences"),
    ({"chosen HH", "rejected HH"}, "Anthropic HH: two conversations as texts"),
    ({"chosen", "rejected", "prompt"}, "TRL, preferences"),
    ({"chosen", "rejected"}, "TRL, preferences whose common beginning is the prompt"),
    ({"prompt", "completion", "label"}, "TRL, unpaired preferences (KTO)"),
    ({"completions", "labels"}, "TRL, stepwise supervision (PRM)"),
    ({"reward_model"}, "verl"),
    ({"messages"}, "messages: a conversation"), ({"conversations"}, "ShareGPT: a conversation"),
    ({"instruction", "output"}, "alpaca"), ({"input", "label"}, "OpenRLHF"),
    ({"problem", "solution"}, "MATH: problem and solution"), ({"question", "answer"}, "GSM8K: question and answer"),
    ({"prompt turns", "completion"}, "TRL, conversational prompt and completion"),
    ({"prompt", "completion"}, "TRL, prompt and completion"), ({"prompt turns"}, "TRL, conversational prompt"),
    ({"prompt", "answer"}, "prompt and answer"), ({"prompt"}, "TRL, prompt alone"))
OTHER = "fields of your own"
_PARTS = {"reward_model": "reward_model.ground_truth"}  # what of a field is used


@dataclass(frozen=True)
class Described:
    """`fields` are the row's own names of what is used, with what each stands for; `columns` those that travel."""

    layout: str
    fields: Mapping[str, str]
    columns: tuple[str, ...]


def described(value: Mapping[str, Any], place: str, names: Mapping[str, str], labelled: bool) -> Described:
    """The entry of the row `value` as `layouts.entry` reads it. Raises LabError as that does.

    >>> found = described({"question": "2+3?", "answer": "5", "level": 1}, "line 1", {}, False)
    >>> found.layout, found.fields, found.columns
    ('GSM8K: question and answer', {'question': 'prompt', 'answer': 'answer'}, ('level',))
    """
    made, row = entry(value, place, names, labelled), renamed(value, place, names)
    used = [name for name, content in row.items() if name not in made.columns and content is not None]
    kinds = {kind for name in used for kind in (name, f"{name} {_kind(row[name])}")}
    layout = OTHER if names else next((name for fields, name in _LAYOUTS if fields <= kinds | {*row}), OTHER)
    fields = {_PARTS.get(name, names.get(name, name)): _stands_for(name, made) for name in used}
    return Described(layout, fields, tuple(made.columns))


def _kind(content: Any) -> str:
    return _TURNS if isinstance(content, list) else "HH" if str(content).startswith("\n\nHuman:") else "text"


def _stands_for(name: str, made: Entry) -> str:
    if name in CONVERSATIONS:
        return "prompt" if made.answer is None else "prompt and answer"
    if name in ("chosen", "rejected", "system") or (name in ("completion", "label") and made.label is not None):
        return name
    return "prompt" if name in PROMPTS else "answer" if name in (*ANSWERS, "reward_model") else name
