"""The rewards that `own_function` adds up, as its knobs name them.

    reward_function   mine.py:right 0a1b2c3d4e5f + verifier + judge
    reward_weights    1 0.5 0.5

A term is a Python function of the user's, by its file, its name and the hash of the file, or a source that is here
anyway: the task's verifier, the reward model of `reward_model`, the judge of `judge_url`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from labcore.errors import LabError, quoted

SOURCE = "own_function"  # the member of the family REWARD
VERIFIER, REWARD_MODEL, JUDGE = "verifier", "reward_model", "judge"
BUILT_IN = (VERIFIER, REWARD_MODEL, JUDGE)
JOIN = " + "
_TAKEN = (*BUILT_IN, "gold", "reward", "shaped", "steps", "spread")  # parts of a reward that mean something else
_FILE = r"[^/\\\x00-\x1f\x7f-\x9f\u2028\u2029]+?"  # a name without a folder and line breaks: scripts quote it
_TERM = re.compile(rf"(?P<built_in>{'|'.join(BUILT_IN)})|(?P<file>{_FILE}):(?P<function>\w+) (?P<hash>[0-9a-f]+)")


@dataclass(frozen=True)
class Term:
    """A reward of a sum: `key` as the knob has it, `part` as its curve is called; of a function its file and hash."""

    key: str
    part: str
    file: str = ""
    function: str = ""
    hash: str = ""


@cache
def terms(text: str) -> tuple[Term, ...]:
    """The terms that the knob `reward_function` names; none where it is empty. Raises LabError if it is not written so,
    or names a term twice."""
    found = [_term(each) for each in text.split(JOIN)] if text else []
    if twice := [term.key for place, term in enumerate(found) if term.key in [other.key for other in found[:place]]]:
        raise LabError(f"The reward {twice[0]} is named twice: name it once, and give it a larger weight.")
    return tuple(_named(found))


def _term(key: str) -> Term:
    found = _TERM.fullmatch(key)
    if found is None:
        raise LabError(f"The reward {quoted(key)} cannot be used: choose a function of a Python file by "
                       f"--reward FILE:function, or one of {', '.join(BUILT_IN)}.")
    if found["built_in"]:
        return Term(key, key)
    return Term(key, found["function"], found["file"], found["function"], found["hash"])


def _named(found: Sequence[Term]) -> list[Term]:
    """The terms, those of functions with the same name told apart by their files, and then by numbers."""
    functions = [term.function for term in found]
    done: list[Term] = []
    for term in found:
        part = term.part
        if term.function and (functions.count(term.function) > 1 or term.function in _TAKEN):
            part = f"{term.file.removesuffix('.py')}.{term.function}"
        same = sum(other.part == part or other.part.startswith(f"{part}#") for other in done)
        done.append(replace(term, part=f"{part}#{same + 1}" if same else part))
    return done


def scorers(knobs: Mapping[str, Any]) -> str:
    """The rewards of a run that may leave a completion without one, within a sentence."""
    *most, last = [f"the reward {term.part}" for term in of(knobs)] or ["the judge"]
    return f"{', '.join(most)} and {last}" if most else last


def weights(text: str, count: int) -> list[float]:
    """The weights of `count` terms that the knob `reward_weights` gives; all 1 where it is empty. Raises LabError if
    they are not as many finite numbers."""
    words = text.replace(",", " ").split()
    try:
        found = [float(word) for word in words] if words else [1.0] * count
    except ValueError:
        found = [math.nan]
    if not all(map(math.isfinite, found)):
        raise LabError(f"`reward_weights` is {quoted(text)}: write a number for each reward, for example 1 0.5.")
    if len(found) != count:
        raise LabError(f"`reward_weights` has {len(found)} numbers for {count} reward{'' if count == 1 else 's'}: "
                       "write one for each, in their order, or leave it empty for 1 each.")
    return found


def of(knobs: Mapping[str, Any]) -> tuple[Term, ...]:
    """The terms of a run's reward; none if the reward is no sum of terms or its text is invalid. `terms` is the
    function that reports an invalid text."""
    if knobs.get("reward_source") != SOURCE:
        return ()
    try:
        return terms(str(knobs.get("reward_function", "")))
    except LabError:
        return ()
