"""The look of `app/components/chips.js` as HTML for pages: template tokens as chips, thinking folded. Pure."""

from __future__ import annotations

import html
from collections.abc import Iterable

from app.chat_text import CLOSE, OPEN, THINKING, TOKEN, Part


def chipped(parts: Iterable[Part]) -> str:
    """Parts of a text as safe HTML.

    >>> chipped([Part("token", "<s>"), Part("text", "a < b")])
    '<span class="rl-chip">&lt;s&gt;</span><span class="rl-said">a &lt; b</span>'
    >>> chipped([Part("thinking", "<think>\\nso it is</think>")])
    '<details class="rl-fold"><summary>thinking, 3 words</summary><div class="rl-said">so it is</div></details>'
    """
    return "".join(_chip(part) for part in parts)


def _chip(part: Part) -> str:
    text = html.escape(part.text)
    if part.kind == TOKEN:
        return f'<span class="rl-chip">{text}</span>'
    if part.kind == THINKING:
        thought = part.text.replace(OPEN, "").replace(CLOSE, "").strip()
        return folded(f"thinking, {counted(thought)}", html.escape(thought))
    return f'<span class="rl-said">{text}</span>'


def folded(label: str, inside: str) -> str:
    """HTML that is unfolded by a click or by Enter; `inside` is HTML too."""
    return (f'<details class="rl-fold"><summary>{html.escape(label)}</summary>'
            f'<div class="rl-said">{inside}</div></details>')


def counted(text: str) -> str:
    """The length of a text in words, or in characters if its script has no spaces.

    >>> counted("so"), counted("so it is"), counted("因为三加四等于七所以答案就是七这里没有任何空格的文字")
    ('1 word', '3 words', '26 characters')
    """
    words, letters = len(text.split()), len(text)
    count, unit = (words, "word") if words > letters / 20 else (letters, "character")
    return f"{count:,} {unit}{'' if count == 1 else 's'}"
