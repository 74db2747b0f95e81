"""A rendered prompt as the pieces of text that its tokens stand for, to be looked at.

Special tokens, the template's own text and what the file says are told apart. Tokens that are parts of one character,
as byte-level tokenizers have them, are one piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from labcore.llm.rendering import Rendering

SPECIAL, TEMPLATE, TEXT, GAP = "special", "template", "text", "gap"
FIRST, LAST = 180, 60  # pieces of a text that are shown
Piece = tuple[str, list[int], str]  # the text, the ids of its tokens, and its kind


def pieces(rendering: Rendering, text: str, contents: Sequence[str], skip: int = 0) -> list[Piece]:
    """The pieces of a rendered `text` but for its first `skip` tokens; `contents` are those of its turns, in order."""
    tokenizer = rendering.tokenizer
    ids = rendering.encoded(text)
    added = getattr(tokenizer, "added_tokens_decoder", {})
    special = {*tokenizer.all_special_ids, *(token for token, about in added.items() if about.special)}
    spans = _spans(text, contents)
    found: list[Piece] = []
    end = 0
    for place, (token, (start, stop)) in enumerate(zip(ids, _offsets(rendering, text, ids), strict=True)):
        if place < skip:
            end = max(end, stop)
            continue
        if found and start < end and token not in special:  # a further byte of the same character
            found[-1][1].append(token)
            continue
        kind = (SPECIAL if token in special or start == stop
                else TEXT if any(first <= start < last for first, last in spans) else TEMPLATE)
        found.append((text[max(start, end):stop] if stop > start else str(tokenizer.convert_ids_to_tokens(token)),
                      [token], kind))
        end = max(end, stop)
    return found


def shortened(found: Sequence[Piece]) -> list[Piece]:
    """The first and the last pieces, and between them how many tokens are not shown."""
    if len(found) <= FIRST + LAST:
        return [*found]
    between = sum(len(ids) for _, ids, _ in found[FIRST:-LAST])
    return [*found[:FIRST], (f"{between:,} tokens", [], GAP), *found[-LAST:]]


def _offsets(rendering: Rendering, text: str, ids: Sequence[int]) -> list[tuple[int, int]]:
    """Where each token stands in the text; of a tokenizer that does not say it, as far as its tokens' texts tell."""
    tokenizer: Any = rendering.tokenizer
    if tokenizer.is_fast:
        given = tokenizer(text, return_offsets_mapping=True, **rendering.encoding)
        return [(int(start), int(stop)) for start, stop in given["offset_mapping"][:len(ids)]]
    places, end = [], 0
    for token in ids:
        said = tokenizer.decode([token])
        at = text.find(said, end) if said else -1
        places.append((at, at + len(said)) if at >= 0 else (end, end))
        end = max(end, places[-1][1])
    return places


def _spans(text: str, contents: Sequence[str]) -> list[tuple[int, int]]:
    """Where the contents stand in the rendered text; a template may strip what is around them."""
    spans, end = [], 0
    for content in contents:
        inner = content if text.find(content, end) >= 0 else content.strip()
        if inner and (at := text.find(inner, end)) >= 0:
            end = at + len(inner)
            spans.append((at, end))
    return spans
