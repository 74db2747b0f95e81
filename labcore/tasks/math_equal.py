"""Compare two texts as mathematics, by the library math-verify.

Run as a program it judges line by line (`verifiers`), and imports nothing else of the lab, so that it starts fast. On
Linux its memory is bounded; elsewhere only its time is, and `cautions` says so.
"""

from __future__ import annotations

import re

MEMORY = 2**31  # bytes of the process that judges
MATH_CHARACTERS = 4096  # of the end of a text that are parsed


def math_equal(completion: str, answer: str) -> bool:
    r"""True if a completion states what the answer states: the same text, or equal as mathematics.

    Of a text the end counts: the formula in its last \\boxed{}, or else its last formula or number. Only
    `MATH_CHARACTERS` of the end are read. The time is not bounded here: the lab asks in a process that it can end.

    Source: math-verify (Hugging Face), `parse` and `verify`, without their time limits, which need signals and so
    the main thread.
    """
    from math_verify import parse, verify

    if completion.strip() == answer.strip():
        return bool(answer.strip())
    wanted, found = (parse(math_text(text), parsing_timeout=None) for text in (answer, completion))
    return bool(verify(wanted, found, timeout_seconds=None))


def math_text(text: str) -> str:
    r"""The end of a text as math-verify reads it: a bare formula stands between dollar signs.

    >>> math_text(r"\frac34"), math_text("so it is 3/4"), math_text("9 * 2 = 18\n#### 18")
    ('$\\frac34$', 'so it is 3/4', '$18$')
    """
    text = text[-MATH_CHARACTERS:].rpartition("####")[2].strip()
    text = re.sub(r"(?<=[0-9])(?:\\,|\{,\}|,\\!)(?=[0-9]{3}(?![0-9]))", "", text)  # marks between thousands
    words = re.sub(r"\\(?:text|mathrm|mbox)\{[^{}]*\}|\\[A-Za-z]+", "", text)
    dressed = any(mark in text for mark in ("$", "\\boxed", "\\(", "\\[", "\n"))
    return text if dressed or not text or re.search(r"[^\W\d_]{2}", words) else f"${text.rstrip('.')}$"


def _serve() -> None:
    """Answer each line of standard input, [completion, answer], with true or false."""
    import io
    import json
    import logging
    import sys

    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))  # a tower of powers takes all there is
    logging.disable(logging.CRITICAL)  # the library warns that its time limits are off
    math_equal("1", "2")
    said, sys.stdout, sys.stderr = sys.stdout, io.StringIO(), io.StringIO()  # where a parser prints its errors
    print("ready", file=said, flush=True)
    for line in sys.stdin:
        try:
            right = math_equal(*json.loads(line))
        except (MemoryError, RecursionError):  # what the library cannot compute is not right
            right = False
        print(json.dumps(right), file=said, flush=True)


if __name__ == "__main__":
    _serve()
