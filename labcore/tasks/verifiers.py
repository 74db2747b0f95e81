"""Verifiers: is this completion right? Each is a pure function of the completion and the answer.

Left out: part marks. Every score is yes or no.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import regex

from labcore.catalog.knob import Value
from labcore.errors import LabError, quoted
from labcore.runs.files.untrusted import NotJSON, json_of
from labcore.tasks import math_equal
from labcore.tasks.numbers import numeric, plain

# ---------------------------------------------------------------- math judge
# The math verifier: `math_equal` in a process of its own, which is killed where a completion takes too long.
#
# A completion such as 9^{9^{9^9}} keeps Python in one multiplication for ever. No signal and no thread can stop that,
# so a separate process computes.

SECONDS = 5.0  # for one completion, as math-verify has it
_START_SECONDS = 120.0
_lock = threading.Lock()
_started: tuple[int, subprocess.Popen[str]] | None = None  # and the process that started it: a fork has none yet


def maths(completion: str, answer: str) -> bool:
    r"""True if a completion and an answer are equal as mathematics; False where that takes over `SECONDS`.

    Raises:
        LabError: math-verify is not installed or does not start.

    >>> maths(r"so it is \boxed{\frac{3}{4}}", "0.75"), maths("so it is 1/4", "3/4")
    (True, False)
    """
    global _started
    cut = math_equal.MATH_CHARACTERS
    same = completion.strip() == answer.strip()
    if same or not completion.strip() or not answer.strip():
        return same and bool(answer.strip())
    with _lock:
        if _started is None or _started[0] != os.getpid() or _started[1].poll() is not None:
            _started = (os.getpid(), _start())
        process = _started[1]
        said = _asked(process, json.dumps([completion[-cut:], answer[-cut:]]), SECONDS)
        if said is None:
            _started = None
    return said == "true"


def _start() -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-P", math_equal.__file__], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8")
    if _asked(process, "", _START_SECONDS) != "ready":
        assert process.stderr
        said = process.stderr.read().strip().split("\n")[-1]
        raise LabError(f"The math verifier did not start ({said or 'no reason given'}): install the packages of "
                       "requirements.txt, or choose another verifier.")
    return process


def _asked(process: subprocess.Popen[str], line: str, seconds: float) -> str | None:
    """The next line of a process after it was given a `line`, if not empty; None where it ended, or was killed."""
    assert process.stdin and process.stdout
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    with suppress(BrokenPipeError):  # of a process that has just ended: it says nothing any more
        if line:
            print(line, file=process.stdin, flush=True)
    said = process.stdout.readline().strip()
    timer.cancel()
    if not said:
        process.kill()
        process.wait()
    return said or None


# ---------------------------------------------------------------- verifiers

Verifier = Callable[[str, str], bool]

PATTERN_SECONDS = 2.0
_LETTER = r"(?:\\text\{\s*)?[(\[]?\**(?P<letter>[A-J])(?![\w'’])\**[)\]]?"
# Another letter beside the first is no choice; "A" and "I" may be words.
_OTHER = r"(?P<other>\s*(?:,|/|&|\bor\b|\band\b)\s*[(\[]?[A-J](?![\w'’]))?"
_WORD = r"(?![ ](?!because|since|as\b|for\b|and\b|or\b)[a-z])"
_BOXED_LETTER = re.compile(r"\\boxed\{\s*" + _LETTER + _OTHER)
_SAID_LETTER = re.compile(r"\b(?i:answer|choice|option)[\s*]*+(?i:is|:|=)[\s:*]*+(?:(?i:option|choice)\s+)?"
                          r"(?:\\boxed\{|\$)?" + _LETTER + _OTHER + r"(?:(?<![AI])|" + _WORD + ")")
_FIRST_LETTER = re.compile(r"(?m)^[^\S\n]*\**(?:(?P<alone>[(\[]?[A-Ja-j][)\].]?)\**\s*\Z"
                           r"|(?P<option>[(\[]?[A-J][)\].:]\s))")
_FENCE = re.compile(r"(?m)^```(?:json)?[ \t]*$")  # its begin or its end


def exact(completion: str, answer: str) -> bool:
    """True if both are the same text, but for blanks around it.

    >>> exact(" 132\\n", "132"), exact("1320", "132")
    (True, False)
    """
    return completion.strip() == answer.strip()


def matching(pattern: str) -> Verifier:
    """A verifier that searches for a regular expression anywhere in the completion. Raises LabError if the pattern is
    empty or no regular expression. The verifier raises it if a search takes longer than PATTERN_SECONDS, as with
    patterns such as (a+)+$."""
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


def choice(completion: str, answer: str) -> bool:
    """True if both state the same letter of a multiple choice (`letter`); False if either states none or several.

    >>> choice("B. Both are even, so the answer is (B).", "B"), choice("A or B", "B")
    (True, False)
    """
    found = letter(completion)
    return found is not None and found == letter(answer)


def letter(text: str) -> str | None:
    r"""The letter, A to J, that a text states: in a box, or else after "answer", or else as its only option.

    None where it states none, or more than one.

    >>> [letter(text) for text in ("B", "(b)", "B) Paris", "Answer: B", r"\\boxed{B}", "A) 3\nB) 4", "Both.")]
    ['B', 'B', 'B', 'B', 'B', None, None]
    """
    for stated in (_BOXED_LETTER, _SAID_LETTER, _FIRST_LETTER):
        found = list(stated.finditer(text))
        if found:
            letters = {re.sub(r"[^A-J]", "", (each.groupdict().get("letter") or each[0]).upper()) for each in found}
            several = len(letters) > 1 or any(each.groupdict().get("other") for each in found)
            return None if several else letters.pop()
    return None


def is_json(completion: str, answer: str) -> bool:
    """JSON, by itself or in the only fence of Markdown; where the answer is JSON too, with the same value.

    >>> is_json('```json\\n{"a": [1, 2]}\\n```', '{"a":[1,2.0]}'), is_json("{a: 1}", ""), is_json("[1]", "[true]")
    (True, False, False)
    """
    parts = _FENCE.split(completion)
    try:
        found = json_of(parts[1] if len(parts) == 3 else completion)
    except NotJSON:
        return False
    try:
        wanted = json_of(answer)
    except NotJSON:
        return True
    return _alike(found, wanted)


def _alike(one: Any, other: Any) -> bool:
    """True if two values of JSON are the same; true is not 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_alike(*pair) for pair in zip(one, other, strict=True))
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def formatted(template: str) -> Verifier:
    """A verifier of the whole completion against a template, in which "…" (or "...") stands for any text.

    Blanks around the completion and between two tags do not count. The time is linear in the length.

    Raises:
        LabError: the template is empty.

    >>> judge = formatted("<think>…</think><answer>…</answer>")
    >>> judge("<think>3 + 4</think>\\n<answer>7</answer>", ""), judge("7", "")
    (True, False)
    """
    if not template.strip():
        raise LabError("The format verifier needs a template: set pattern, for example "
                       "pattern=<think>…</think><answer>…</answer>.")
    return lambda completion, answer: in_format(completion, template)


def in_format(completion: str, template: str) -> bool:
    """True if a completion has the form of a template (`formatted`)."""
    shape, text = (re.sub(r">\s+<", "><", each.strip()) for each in (template.replace("...", "…"), completion))
    first, *middle = shape.split("…")
    if not middle:
        return text == first
    if not text.startswith(first):
        return False
    place = len(first)
    for part in middle[:-1]:
        at = text.find(part, place)
        if at < 0:
            return False
        place = at + len(part)
    return text.endswith(middle[-1]) and len(text) - len(middle[-1]) >= place


VERIFIERS: dict[str, Callable[[Mapping[str, Value]], Verifier]] = {
    "exact": lambda knobs: exact,
    "numeric": lambda knobs: numeric,
    "math": lambda knobs: maths,
    "choice": lambda knobs: choice,
    "regex": lambda knobs: matching(str(knobs["pattern"])),
    "contains": lambda knobs: containing(str(knobs["pattern"])),
    "length": lambda knobs: within(int(knobs["length_low"]), int(knobs["length_high"])),
    "format": lambda knobs: formatted(str(knobs["pattern"])),
    "json": lambda knobs: is_json,
}


def verifier(knobs: Mapping[str, Value]) -> Verifier:
    """The verifier that the knobs choose. Raises LabError if its pattern cannot be used."""
    return VERIFIERS[str(knobs["verifier"])](knobs)


def answer_fault(knobs: Mapping[str, Value], answer: str) -> str | None:
    """The fault of `answer` for the chosen verifier, as the end of a sentence; None where there is none."""
    name = knobs["verifier"]
    if name == "numeric" and not plain(answer):
        return "is not a whole plain number, which the numeric verifier needs (verifier=math reads fractions and TeX)"
    if name == "choice" and letter(answer) is None:
        return "is not a letter from A to J, which the choice verifier needs"
    if not answer.strip() and (name in ("exact", "math") or (name == "contains" and not knobs["pattern"])):
        return f"is empty, so the {name} verifier has nothing to compare with"
    return None
