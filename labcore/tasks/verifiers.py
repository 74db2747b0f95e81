"""Verifiers: is this completion right? Each is a pure function of the completion and the answer.

Left out: part marks. Every score is yes or no.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from decimal import Decimal

import regex

from labcore.catalog.knob import Value
from labcore.errors import LabError, quoted

Verifier = Callable[[str, str], bool]

PATTERN_SECONDS = 2.0
# A sign counts unless it follows a number or a word ("20-5" ends in 5); commas count between groups of three.
_NUMBER = re.compile(r"(?P<head>(?:(?<![\w)\]%.])[-−+])?[$€£]?(?:(?<=[$€£])[-−+])?)"
                     r"(?P<digits>(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|(?<![0-9])\.[0-9]+)"
                     r"(?P<power>[eE][-+]?[0-9]{1,3}(?!\w))?")


def exact(completion: str, answer: str) -> bool:
    """The same text, but for blanks around it.

    >>> exact(" 132\\n", "132"), exact("1320", "132")
    (True, False)
    """
    return completion.strip() == answer.strip()


def numeric(completion: str, answer: str) -> bool:
    """The same number (`number`); False where either has none.

    >>> numeric("so she makes $1,018.00 a day.", "9 * 2 = 18\\n#### 1018"), numeric("none", "18")
    (True, False)
    """
    found, wanted = number(completion), number(answer)
    return found is not None and found == wanted


def number(text: str) -> Decimal | None:
    """The number after the first "####", or else the last number; None where there is none.

    Signs, currency signs, commas between thousands, decimals and powers of ten are read; a percent sign is
    dropped, so 50% is 50.

    Source: Cobbe et al. 2021, arXiv:2110.14168, whose evaluation takes the first "####".

    >>> [str(number(text)) for text in ("2 + 3 = 5\\n#### -1,234.5", "from 3 to 4.", "20-5", "−$.50", "no")]
    ['-1234.5', '4', '5', '-0.50', 'None']
    """
    _, _, after = text.partition("####")
    found = _NUMBER.search(after.strip().split("\n")[0])
    if found is None:
        found = next(iter(deque(_NUMBER.finditer(text), maxlen=1)), None)
    if found is None:
        return None
    value = Decimal(found["digits"].replace(",", "") + (found["power"] or ""))
    return -value if set(found["head"]) & set("-−") else value


def matching(pattern: str) -> Verifier:
    """A verifier that searches for a regular expression anywhere in the completion.

    Raises:
        LabError: the pattern is empty or no regular expression; when judging, it takes over PATTERN_SECONDS,
            as patterns like (a+)+$ can.
    """
    if not pattern:
        raise LabError("The regex verifier needs a pattern: set pattern, for example pattern=^[a-z ]+$.")
    try:
        compiled = regex.compile(pattern)
    except regex.error as error:
        raise LabError(f"The pattern {quoted(pattern)} is not a regular expression ({error}): correct it.") from error

    def matches(completion: str, answer: str) -> bool:
        try:
            return compiled.search(completion, timeout=PATTERN_SECONDS) is not None
        except TimeoutError as error:
            raise LabError(f"The pattern {quoted(pattern)} took over {PATTERN_SECONDS:g} s on a completion of "
                           f"{len(completion)} characters: avoid repeats within repeats, such as (a+)+.") from error

    return matches


def containing(pattern: str) -> Verifier:
    """A verifier that looks for `pattern`, or for the answer where `pattern` is empty.

    >>> containing("")("The sum is 12.", "12"), containing("cat")("a dog", "cat")
    (True, False)
    """
    return lambda completion, answer: (pattern or answer.strip()) in completion


def within(low: int, high: int) -> Verifier:
    """A verifier of the length in characters, both ends included.

    >>> [within(2, 3)("x" * length, "") for length in (1, 2, 3, 4)]
    [False, True, True, False]
    """
    return lambda completion, answer: low <= len(completion) <= high


VERIFIERS: dict[str, Callable[[Mapping[str, Value]], Verifier]] = {
    "exact": lambda knobs: exact,
    "numeric": lambda knobs: numeric,
    "regex": lambda knobs: matching(str(knobs["pattern"])),
    "contains": lambda knobs: containing(str(knobs["pattern"])),
    "length": lambda knobs: within(int(knobs["length_low"]), int(knobs["length_high"])),
}


def verifier(knobs: Mapping[str, Value]) -> Verifier:
    """The verifier that the knobs choose.

    Raises:
        LabError: its pattern cannot be used.
    """
    return VERIFIERS[str(knobs["verifier"])](knobs)


def answer_fault(knobs: Mapping[str, Value], answer: str) -> str | None:
    """What is wrong with `answer` for the chosen verifier, as the end of a sentence; None where it will do."""
    name = knobs["verifier"]
    if name == "numeric" and number(answer) is None:
        return "has no number, which the numeric verifier needs"
    if not answer.strip() and (name == "exact" or (name == "contains" and not knobs["pattern"])):
        return f"is empty, so the {name} verifier has nothing to compare with"
    return None
