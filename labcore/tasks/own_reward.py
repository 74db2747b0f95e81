"""A reward function of the user's own: Python in a file of theirs, named on the command line and nowhere else.

Nothing but the command that the user types can bring a function in: a spec, a link, an upload and a capsule hold its
name and the hash of its file only. A run that wants a function which this process was not given ends with a sentence.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from labcore.errors import LabError, quoted
from labcore.files import given
from labcore.files.paths import path_of

Function = Callable[..., Sequence[float]]
SOURCE = "own_function"  # the member of the family REWARD
_MODULE = "own_reward_file"

_given: dict[str, Function] = {}


def give(place: str) -> str:
    """Load FILE:function for this process. Returns how specs call it: "FILE:function HASH", without the folder.

    Raises:
        LabError: there is no such file or function, or the file cannot be run.
    """
    file, _, function = place.rpartition(":")
    if not file or not function.isidentifier():
        raise LabError(f"--reward {quoted(place)} is no FILE:function: write for example --reward my_reward.py:score.")
    path = path_of(file)
    source = given.read(path)
    found = getattr(_loaded(path, source), function, None)
    if not callable(found):
        raise LabError(f"The file {file} has no function {quoted(function)}: check the name after the colon.")
    name = f"{path.name}:{function} {hashlib.sha256(source).hexdigest()[:12]}"
    _given[name] = found
    return name


def _loaded(path: Path, source: bytes) -> ModuleType:
    """The module of the very bytes that were hashed: what Python has cached of the file may be older."""
    if path.suffix != ".py":
        raise LabError(f"The reward file {path} is no Python file: its name must end in .py.")
    module = ModuleType(_MODULE)
    module.__file__ = str(path)
    sys.modules[_MODULE] = module  # where a dataclass looks for its annotations
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
    except Exception as error:  # whatever the user's file raises
        raise LabError(f"The reward file {path} cannot be run ({_words(error)}): correct it.") from error
    return module


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
        LabError: the function was not given, raises, or returns anything but a finite number for each completion.
    """
    check(name)
    short = name.rpartition(" ")[0]
    try:
        found = list(_given[name](prompts=prompts, completions=completions, answer=answers))
    except Exception as error:  # whatever the user's function raises
        raise LabError(f"The reward function {short} raised {_words(error)}: correct it, then start a new run with it."
                       ) from error
    if len(found) != len(completions):
        raise LabError(f"The reward function {short} returned {len(found)} rewards for {len(completions)} completions: "
                       "return one number for each.")
    for index, reward in enumerate(found):
        if isinstance(reward, str) or not _finite(reward):
            raise LabError(f"The reward function {short} returned {quoted(reward)} for the completion "
                           f"{quoted(completions[index])}: return a finite number.")
    return [float(reward) for reward in found]


def _finite(reward: Any) -> bool:
    try:
        return math.isfinite(float(reward))
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last: a tensor of several numbers
        return False


def _words(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')[:200]}" if lines else type(error).__name__
