"""The text that each token adds, where a character may take several tokens.

A byte-level or byte-fallback token may hold only some of a character's bytes, and the space of a SentencePiece token is
only there behind another token: decoded alone, the first is "�" and the second has lost its space.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

BROKEN = "\ufffd"  # what a decoder writes for bytes that are no character
MOST = 4  # tokens of a character: UTF-8 has no more bytes in one
CONTEXT = 8  # tokens before an alternative: enough for a whole character and one in the making
_BYTES = {letter: byte for byte, letter in bytes_to_unicode().items()}


def token_texts(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """The text that each token adds. If a character takes several tokens, the first one gets it and the others "".

    Bytes that never become a character are written as `bytes_of` does.
    """
    found: list[str] = []
    context, start = ids[:0], 0  # the tokens of the last whole character: a SentencePiece space needs one before it
    while start < len(ids):
        known = tokenizer.decode(context)
        for stop in range(start + 1, min(start + MOST, len(ids)) + 1):
            added = tokenizer.decode([*context, *ids[start:stop]])[len(known):]
            if not added.endswith(BROKEN):
                break
        if BROKEN in added:
            stop, added = start + 1, bytes_of(tokenizer, ids[start])
        else:
            context = ids[start:stop]
        found += [added, *[""] * (stop - start - 1)]
        start = stop
    return found


def alternative(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], token: int) -> str:
    """The text that `token` would add after `ids`; its bytes where it leaves a character unfinished."""
    known = tokenizer.decode(ids[-CONTEXT:]).rstrip(BROKEN)
    added = tokenizer.decode([*ids[-CONTEXT:], token])[len(known):]
    return bytes_of(tokenizer, token) if BROKEN in added else added


def bytes_of(tokenizer: PreTrainedTokenizerBase, token: int) -> str:
    """A token by its bytes, such as "‹F0 9F›"; as the decoder writes it where its vocabulary does not say them."""
    piece = str(tokenizer.convert_ids_to_tokens(token))
    if fallback := re.fullmatch("<0x([0-9A-F]{2})>", piece):
        return f"‹{fallback[1]}›"
    if all(letter in _BYTES for letter in piece):
        return f"‹{' '.join(f'{_BYTES[letter]:02X}' for letter in piece)}›"
    written: str = tokenizer.decode([token])
    return written
