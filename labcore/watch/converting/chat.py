"""Prompts and completions that are lists of messages, as TRL's conversational data has them.

A samples file stores such a prompt in three fields: `prompt` is what the user said last, `rendered` the whole
conversation as text, and `messages` its turns. The text is written in ChatML, which the pages show as a chat. It is not
the template of the model, which the lab does not know.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Message = dict[str, str]  # "role" and "content"
MODEL, USER = "assistant", "user"
_BEGIN, _END = "<|im_start|>", "<|im_end|>"
LONGEST_ROLE = 40  # characters


def prompt_fields(said: object) -> dict[str, Any]:
    """Return the fields of a prompt: only `prompt` for a text; no `rendered` for a single message.

    >>> prompt_fields([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])["prompt"]
    'Hi'
    """
    if not isinstance(said, list):
        return {"prompt": _text(said)}
    turns = messages(said)
    last = next((each for each in reversed(turns) if each["role"] == USER), turns[-1] if turns else {"content": ""})
    whole = {"rendered": _chatml(turns)} if len(turns) > 1 else {}
    return {"prompt": last["content"], **whole, "messages": turns}


def completion_fields(said: object) -> dict[str, str]:
    """Return the fields of a completion: `text`, and for several messages also `final`, the last text of the model.

    >>> completion_fields([{"role": "assistant", "content": "4"}])
    {'text': '4'}
    """
    if not isinstance(said, list):
        return {"text": _text(said)}
    turns = messages(said)
    if len(turns) < 2:
        return {"text": "".join(each["content"] for each in turns)}
    final = next((each["content"] for each in reversed(turns) if each["role"] == MODEL and each["content"]), "")
    whole = _chatml(turns)
    return {"text": whole.removeprefix(f"{_BEGIN}{MODEL}\n"), "final": final}  # the prompt ends with this header


def messages(said: Sequence[Any]) -> list[Message]:
    """Return the messages of a list as role and text. Items that are not messages are texts without a role."""
    return [{"role": str(each.get("role") or "")[:LONGEST_ROLE], "content": _content(each)}
            if isinstance(each, Mapping) else {"role": "", "content": _text(each)} for each in said if each is not None]


def _content(message: Mapping[str, Any]) -> str:
    """The text of a message, with the model's thinking before it and its tool calls behind it."""
    content = message.get("content")
    if isinstance(content, list):  # parts of text and images
        content = "".join(str(part.get("text") or f"[{part.get('type', 'part')}]") for part in content
                          if isinstance(part, Mapping))
    thought, calls = message.get("reasoning_content"), message.get("tool_calls")
    return ((f"<think>{thought}</think>" if thought else "") + _text(content)
            + (json.dumps(calls, ensure_ascii=False, default=str) if calls else ""))


def _chatml(turns: Sequence[Message]) -> str:
    return "\n".join(f"{_BEGIN}{each['role']}\n{each['content']}{_END}" for each in turns)


def _text(said: object) -> str:
    return "" if said is None else str(said)
