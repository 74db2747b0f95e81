"""Prepare prompts and completions of chat models for display: find the last user turn, and separate template tokens and
thinking from the text. Pure.

A template is known by its tokens alone: a text may come from any model, or from a file in which it was written out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

TEXT, TOKEN, THINKING = "text", "token", "thinking"
SHOWN = 160  # characters of a prompt that is not unfolded
OPEN, CLOSE = "<think>", "</think>"
_TOKEN = re.compile(r"<\|[^|<>\s]{1,40}\|>|<｜[^｜<>]{1,40}｜>|</?s>|<(?:bos|eos|pad|unk|start_of_turn|end_of_turn)>"
                    r"|\[/?INST\]|<</?SYS>>")
_THOUGHT = re.compile(rf"({OPEN}.*?(?:{CLOSE}|\Z)|\A(?:(?!{OPEN}).)*?{CLOSE})", re.DOTALL)
_USER = re.compile(  # ChatML, Llama 3 and Gemma; Phi, Zephyr and DeepSeek; Llama 2 and Mistral; Anthropic's pairs
    rf"(?:(?:<\|im_start\|>|<\|start_header_id\|>|<start_of_turn>)user(?:<\|end_header_id\|>)?\n"
    rf"|(?:<\|user\|>|<｜User｜>|\[INST\])|(?:\A|\n\n)Human:)(.*?)(?={_TOKEN.pattern}|\n\nAssistant:|\Z)", re.DOTALL)
_SYSTEM = re.compile(r"<<SYS>>.*?<</SYS>>", re.DOTALL)  # Llama 2 writes it into the user's turn


class Part(NamedTuple):
    """A stretch of a text: `kind` is TEXT, TOKEN (of a template) or THINKING."""

    kind: str
    text: str


def last_turn(text: str) -> str:
    """The user's last turn in a prompt that a chat template wrote; any other text unchanged.

    >>> last_turn("<|im_start|>user\\n3 + 4?<|im_end|>\\n<|im_start|>assistant\\n")
    '3 + 4?'
    >>> last_turn("ba=")
    'ba='
    """
    said = [turn.strip() for turn in _USER.findall(_SYSTEM.sub("", text))]
    return next((turn for turn in reversed(said) if turn), text)


def parts(text: str) -> list[Part]:
    """The text cut into what was said, the tokens of its template, and thinking; joined they are the text.

    >>> [*map(tuple, parts("<s>Hi<think>\\nso</think>Yes</s>"))]
    [('token', '<s>'), ('text', 'Hi'), ('thinking', '<think>\\nso</think>'), ('text', 'Yes'), ('token', '</s>')]
    """
    found = []
    for place, stretch in enumerate(_THOUGHT.split(text)):
        found += [Part(THINKING, stretch)] if place % 2 else _tokens(stretch)
    return [part for part in found if part.text]


def _tokens(text: str) -> list[Part]:
    found, at = [], 0
    for token in _TOKEN.finditer(text):
        found += [Part(TEXT, text[at:token.start()]), Part(TOKEN, token[0])]
        at = token.end()
    return [*found, Part(TEXT, text[at:])]


def thought(pieces: Sequence[str]) -> tuple[int, int] | None:
    """Which tokens of a completion are thinking: from the first up to, not including, the second; None without any.

    >>> thought(["<", "think>", "so", "</think>", "Yes"]), thought(["so", "</think>", "Yes"]), thought(["Yes"])
    ((0, 4), (0, 2), None)
    """
    found = _THOUGHT.search("".join(pieces))
    if found is None:
        return None
    ends = [0]
    for piece in pieces:
        ends.append(ends[-1] + len(piece))
    start = max(place for place, end in enumerate(ends) if end <= found.start())
    return start, next(place for place, end in enumerate(ends) if end >= found.end() and place > start)


def ends(text: str) -> tuple[str, str]:
    """The first and the last line of what a model answered, without its thinking and the tokens of a template.

    The last is empty where there is but one.

    >>> ends("<think>hm</think>\\nFirst.\\n\\nSecond.\\nSo 7.<|im_end|>"), ends("7")
    (('First.', 'So 7.'), ('7', ''))
    """
    said = "".join(part.text for part in parts(text) if part.kind == TEXT)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return (lines or [""])[0], lines[-1] if len(lines) > 1 else ""


def prompt_view(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item's prompt for the browser: its last user turn, without the middle where it is long, and where that is not
    all of it the whole as parts.

    `rendered` of an item is its prompt as the model read it; one without was read as it stands.
    """
    whole = str(item.get("rendered") or item["prompt"])
    turn = _without_middle(last_turn(str(item["prompt"])), SHOWN, SHOWN // 3)
    return {"turn": turn, "parts": [] if whole == turn else [*map(list, parts(whole))]}


def in_one_line(prompt: str, most: int) -> str:
    """The last user turn of a prompt in one line of about so many characters: of a longer one the beginning and the
    end, since prompts that begin with the same instruction differ in their ends.

    >>> in_one_line("Add them.\\n\\n3 + 4?", 30), in_one_line("Add these two numbers for me: 3 + 4?", 18)
    ('Add them. 3 + 4?', 'Add… for me: 3 + 4?')
    """
    return _without_middle(" ".join(last_turn(prompt).split()), most, most // 6)


def _without_middle(text: str, most: int, head: int) -> str:
    return text if len(text) <= most else f"{text[:head].rstrip()}… {text[len(text) - (most - head - 1):].lstrip()}"


def shortened(text: str, most: int) -> str:
    """At most so many characters, and a sign that there are more.

    >>> shortened("abcdef", 4), shortened("abcd", 4)
    ('abcd…', 'abcd')
    """
    return text if len(text) <= most else f"{text[:most].rstrip()}…"
