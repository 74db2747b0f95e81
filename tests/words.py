"""What a sentence has to say, whatever its words: numbers, names, and what to do."""

import re


def says(text: object, *facts: str) -> bool:
    """Whether the text holds all these facts in this order, each as whole words.

    >>> says("It rises from 0.5 to 10.5.", "0.5", "10.5"), says("It rises from 0.5 to 10.5.", "10.5", "0.5")
    (True, False)
    >>> says("10.5", "0.5"), says("0.55", "0.5"), says("0.5.", "0.5")
    (False, False, True)
    """
    return re.search(saying(*facts), str(text)) is not None


def saying(*facts: str) -> str:
    """The same as a pattern, for `pytest.raises(match=saying(...))`."""
    found = (rf"(?:(?<![\w.])|(?!\w)){re.escape(fact)}(?:(?!\w|\.\d)|(?<!\w))" for fact in facts)
    return f"(?s:{'.*?'.join(found)})"
