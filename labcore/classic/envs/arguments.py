"""The arguments of an environment: `is_slippery=false map_name=8x8`, as a shell would read them.

A run keeps them as this one text, so that they are saved, compared and swept as any other knob is.
"""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator

from labcore.catalog.knob import suggestion
from labcore.errors import LabError, quoted

LIMIT = "max_episode_steps"  # taken by Gymnasium itself, for any environment
_OURS = ("self", "render_mode")


def parse(text: str) -> dict[str, Any]:
    """The arguments in a text. A value is read as JSON where it is JSON, else it is a word.

    >>> parse("is_slippery=false map_name=8x8 g=9.8")
    {'is_slippery': False, 'map_name': '8x8', 'g': 9.8}

    Raises:
        LabError: it has a part without a name or a value, or a quote that does not end.
    """
    try:
        parts = shlex.split(text)
    except ValueError as error:
        raise LabError(f"The arguments {quoted(text)} have a quote that does not end: close it.") from error
    return dict(map(one, parts))


def one(part: str) -> tuple[str, Any]:
    """The name and the value of one argument. Raises LabError where it lacks either.

    >>> one("is_slippery=false")
    ('is_slippery', False)
    """
    name, equals, text = part.partition("=")
    if not equals or not name.isidentifier():
        raise LabError(f"The environment's argument {quoted(part)} has no name or no value: write NAME=VALUE, for "
                       "example is_slippery=false.")
    return name, value(text)


def written(arguments: Mapping[str, Any]) -> str:
    """The text of some arguments, in one form for one meaning: the inverse of `parse`.

    >>> written({"map_name": "8x8", "is_slippery": False}), written({"map_name": "true"})
    ('is_slippery=false map_name=8x8', '\\'map_name="true"\\'')
    """
    return shlex.join(f"{name}={word(arguments[name])}" for name in sorted(arguments))


def word(argument: Any) -> str:
    """An argument as `value` reads it.

    >>> word(False), word("8x8"), word("8")
    ('false', '8x8', '"8"')
    """
    plain = isinstance(argument, str) and value(argument) == argument
    return argument if plain else json.dumps(argument, ensure_ascii=False)


def value(text: str) -> Any:
    """The value of a text: that of its JSON, else the text itself.

    >>> value("8x8"), value("False"), value("[1, 2]")
    ('8x8', False, [1, 2])
    """
    try:
        return json.loads(text.lower() if text in ("True", "False") else text)
    except (ValueError, RecursionError):
        return text


def offered(env_id: str) -> dict[str, Any]:
    """The arguments that a registered environment takes, with their defaults; empty if its class cannot be loaded. A
    default in the registration replaces the one of the class."""
    return _offered(env_id) if env_id in gym.registry else {}  # a module may register it later


@lru_cache
def _offered(env_id: str) -> dict[str, Any]:
    about = gym.registry[env_id]
    try:
        creator = load_env_creator(about.entry_point) if isinstance(about.entry_point, str) else about.entry_point
        parameters = inspect.signature(creator).parameters if creator else {}
    except Exception:  # the module of another package: it may need one that is not installed, which is said elsewhere
        return {}
    return {name: about.kwargs.get(name, parameter.default) for name, parameter in parameters.items()
            if name not in _OURS and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            and (parameter.default is not parameter.empty or name in about.kwargs)}


def check(env_id: str, arguments: Mapping[str, Any]) -> None:
    """Check the arguments of an environment. Raises LabError if its class shows that it has no argument of a name, or
    if the value of a switch or a number is something else, because Python would read any word as true."""
    known = offered(env_id)
    for name, given in arguments.items():
        if known and name not in (*known, LIMIT):
            raise LabError(f"{env_id} has no argument {quoted(name)}: {suggestion(name, [*known, LIMIT])}")
        if (kind := _kind(known.get(name))) and _kind(given) != kind:
            raise LabError(f"`{name}` of {env_id} is {quoted(given)}: use {kind}.")
    limit = arguments.get(LIMIT, 1)
    if type(limit) is not int or limit < 1:
        raise LabError(f"`{LIMIT}` of {env_id} is {quoted(limit)}: use a whole number from 1.")


def _kind(given: Any) -> str:
    """The kind of a switch or a number, as a sentence asks for it; "" of anything else."""
    if isinstance(given, bool):
        return "true or false"
    return "a number" if isinstance(given, int | float) else ""
