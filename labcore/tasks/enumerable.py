"""How many completions a small problem has: no torch, so that a form can say so before a run starts."""

from __future__ import annotations

from labcore.errors import LabError

LIMIT = 10_000  # completions of a prompt


def count(letters: int, length: int, limit: int = LIMIT, ends: bool = True) -> int:
    """The completions of at most `length` tokens of `letters` and, where it `ends`, the end token.

    Raises:
        LabError: there are more than `limit`.

    >>> count(3, 3), count(2, 4, ends=False)
    (40, 16)
    """
    found = letters**length + (sum(letters**size for size in range(length)) if ends else 0)
    if found > limit:
        raise LabError(f"{letters} letters and up to {length} tokens make {found:,} completions, and at most {limit:,} "
                       "can be enumerated: take fewer letters or a lower length limit (max_new_tokens).")
    return found
