"""What a sentence has to say, whatever its words: numbers, names, and what to do."""

from __future__ import annotations

import re


def says(text: object, *facts: str) -> bool:
    """Whether the text holds all these facts in this order, each as whole words.

    >>> says("It rises from 0.5 to 10.5.", "0.5", "10.5"), says("It rises from 0.5 to 10.5.", "10.5", "0.5")
    (True, False)
    >>> says("10.5", "0.5"), says("0.55", "0.5"), says("0.5.", "0.5")
    (False, False, True)
    """
    found = (rf"(?<![\w.]){re.escape(fact)}(?!\w|\.\d)" for fact in facts)
    return re.search(".*?".join(found), str(text), re.DOTALL) is not None
