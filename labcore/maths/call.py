"""From the names in the catalog to functions, and from knobs and tensors to their parameters.

A step has its knobs (β, ε, λ …) in one mapping and its tensors (logprobs, advantages …) in another. A function is
called with the knobs and tensors that its parameters name, so a step never asks which function it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from inspect import Parameter, signature
from pkgutil import resolve_name
from typing import Any

from labcore.catalog.choice import Family, Surrogate


@cache
def member(family: Family[Any], key: str) -> Callable[..., Any]:
    """The function that the choice `key` of `family` names.

    Raises:
        LabError: the family has no such member.
    """
    function: Callable[..., Any] = resolve_name(f"{family.module}:{family[key].key}")
    return function


@cache
def cut_of(family: Family[Surrogate], key: str) -> Callable[..., Any] | None:
    """The function that finds the tokens which the choice `key` of `family` cuts off; None if it cuts none off.

    Raises:
        LabError: the family has no such member.
    """
    return beside(family, family[key].cut)


@cache
def beside(family: Family[Any], name: str) -> Callable[..., Any] | None:
    """The function `name` in the module of `family`, which a choice declares; None where it declares none."""
    return resolve_name(f"{family.module}:{name}") if name else None


@cache
def parameters(function: Callable[..., Any]) -> tuple[frozenset[str], frozenset[str]]:
    """The names of all parameters of `function`, and the names of the required ones."""
    named = signature(function).parameters.values()
    return (frozenset(parameter.name for parameter in named),
            frozenset(parameter.name for parameter in named if parameter.default is Parameter.empty))


def call(function: Callable[..., Any], knobs: Mapping[str, Any], tensors: Mapping[str, Any]) -> Any:
    """Call `function` with the tensors and knobs that its parameters name, and no others.

    A name in both is the tensor: `ratio` is a knob's name too, that of the kind of ratio chosen.

    Raises:
        TypeError: a parameter without a default is in neither.
    """
    names, required = parameters(function)
    missing = sorted(required - tensors.keys() - knobs.keys())
    if missing:
        raise TypeError(f"{function.__module__}.{function.__name__} needs {', '.join(missing)}; there are only the "
                        f"tensors {', '.join(sorted(tensors)) or 'none'} and the knobs "
                        f"{', '.join(sorted(knobs)) or 'none'}.")
    return function(**{name: value for name, value in {**knobs, **tensors}.items() if name in names})
