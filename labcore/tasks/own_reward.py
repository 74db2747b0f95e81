"""A reward function of the user's own: Python in a file of theirs, named on the command line and nowhere else.

Nothing but the command that the user types can bring a function in: a spec, a link, an upload and a capsule hold its
name and the hash of its file only. A run that wants a function which this process was not given ends with a sentence.

The function gets copies of the lab's lists. What it prints goes to standard error, since standard output may be JSON
that a program reads. It is called once for each batch of completions, all of them together, as a function may compare
them with each other; pictures take what it gave then (`known`) and never call it.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from labcore.errors import LabError, quoted
from labcore.files import given
from labcore.files.paths import check_writable, path_of

Function = Callable[..., Sequence[float]]
SOURCE = "own_function"  # the member of the family REWARD
_MODULE = "own_reward_file"

KNOWN = 2**17  # rewards that are remembered, the newest

_given: dict[str, Function] = {}
_known: dict[tuple[str, str, str, str], float] = {}  # by function, prompt, completion and answer


def give(place: str) -> str:
    """Load FILE:function for this process. Returns how specs call it: "FILE:function HASH", without the folder.

    Raises:
        LabError: there is no such file or function, the file cannot be run, or the lab is shared for reading.
    """
    check_writable()
    file, _, function = place.rpartition(":")
    if not file or not function.isidentifier():
        raise LabError(f"--reward {quoted(place)} is no FILE:function: write for example --reward my_reward.py:score.")
    path = path_of(file)
    source = given.read(path)
    wrong = f"The reward file {path} cannot be run (", "): correct it."
    module = _loaded(path, source, wrong)
    with _theirs(*wrong):  # it may have a __getattr__ of its own
        found = getattr(module, function, None)
    if not callable(found):
        raise LabError(f"The file {file} has no function {quoted(function)}: check the name after the colon.")
    name = f"{path.name}:{function} {hashlib.sha256(source).hexdigest()[:12]}"
    _given[name] = found
    return name


def _loaded(path: Path, source: bytes, wrong: tuple[str, str]) -> ModuleType:
    """The module of the very bytes that were hashed: what Python has cached of the file may be older."""
    if path.suffix != ".py":
        raise LabError(f"The reward file {path} is no Python file: its name must end in .py.")
    module = ModuleType(_MODULE)
    module.__file__ = str(path)
    sys.modules[_MODULE] = module  # where a dataclass looks for its annotations
    with _theirs(*wrong):
        exec(compile(source, str(path), "exec"), module.__dict__)
    return module


@contextmanager
def _theirs(before: str, after: str) -> Iterator[None]:
    """Run the user's code: what it prints goes to standard error.

    Raises:
        LabError: it raises anything, or would end the process: said between `before` and `after`.
    """
    try:
        with redirect_stdout(_stream()), redirect_stderr(_stream()):
            yield
    except (Exception, SystemExit) as error:
        raise LabError(f"{before}{_words(error)}{after}") from error


class _Stream(io.TextIOWrapper):
    """A stream that the user's code may close without closing one of the lab's."""

    def close(self) -> None:
        self.flush()


@cache
def _stream() -> _Stream:
    """Standard error under a descriptor of its own; a process without one has none to print to."""
    try:
        descriptor = os.dup(2)
    except OSError:
        descriptor = os.open(os.devnull, os.O_WRONLY)
    return _Stream(os.fdopen(descriptor, "wb"), encoding="utf-8", errors="backslashreplace", line_buffering=True)


def check(name: str) -> None:
    """Raise LabError unless this process was given the function `name`."""
    if name in _given:
        return
    if not name:
        raise LabError("The reward source own_function takes a Python function from the command line only: start the "
                       "run with python -m labcore run --reward FILE:function.")
    other = f", not {next(iter(_given))}" if _given else ""
    short, _, digits = name.rpartition(" ")
    raise LabError(f"The rewards of this run come from {short} with the hash {digits}{other}: resume it "
                   "on the command line with --reward FILE:function and that very file.")


def rewards(name: str, prompts: list[str], completions: list[str], answers: list[str]) -> list[float]:
    """What the function gives for some completions, called as TRL calls one.

    Raises:
        LabError: the function was not given, raises, ends the process, or returns anything but a finite number for
            each completion.
    """
    check(name)
    short = name.rpartition(" ")[0]
    with _theirs(f"The reward function {short} raised ", ": correct it, then start a new run with it."):
        returned = list(_given[name](prompts=[*prompts], completions=[*completions], answer=[*answers]))
        found = [_number(reward) for reward in returned]
    if len(found) != len(completions):
        raise LabError(f"The reward function {short} returned {len(found)} rewards for {len(completions)} completions: "
                       "return one number for each.")
    for reward, number, completion in zip(returned, found, completions, strict=True):
        if not math.isfinite(number):
            raise LabError(f"The reward function {short} returned {quoted(reward)} for the completion "
                           f"{quoted(completion)}: return a finite number.")
    _remember(name, prompts, completions, answers, found)
    return found


def _number(reward: Any) -> float:
    """A reward as a number; NaN where it is none. Numbers of other libraries raise what they like."""
    try:
        return math.nan if isinstance(reward, str) else float(reward)
    except Exception:
        return math.nan


def _remember(name: str, prompts: list[str], completions: list[str], answers: list[str], found: list[float]) -> None:
    for prompt, completion, answer, reward in zip(prompts, completions, answers, found, strict=True):
        _known.pop(key := (name, prompt, completion, answer), None)
        _known[key] = reward
    while len(_known) > KNOWN:
        del _known[next(iter(_known))]


def known(name: str, prompts: list[str], completions: list[str], answers: list[str]) -> list[float]:
    """What the function gave for each completion when it was last called with it; NaN where it was not, or long ago."""
    return [_known.get((name, *each), math.nan) for each in zip(prompts, completions, answers, strict=True)]


def _words(error: BaseException) -> str:
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # an error whose text is the user's code as well
        lines = []
    return f"{type(error).__name__}: {lines[0].rstrip('.')[:200]}" if lines else type(error).__name__
