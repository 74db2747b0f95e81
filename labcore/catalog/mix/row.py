"""The row of a mix: a named row with every knob that its loop has, so that any of the loop's choices finds what it
needs, with the mix's name, and with the equation, the models and the charts of what is chosen."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, lru_cache

from labcore.catalog import choices, inactive, kinds
from labcore.catalog.algorithm import Algorithm
from labcore.catalog.choice import Advantage
from labcore.catalog.knob import Value
from labcore.catalog.llm.row import SURROGATE
from labcore.catalog.mix.equation import equation
from labcore.catalog.mix.nearest import LOOPS
from labcore.errors import LabError, quoted

LONGEST = 40
NAME = re.compile(rf"(?! )[\w .,+()'/-]{{1,{LONGEST}}}(?<! )")
# What a row without the knob does, where the default of the first row that has it would be another.
_WITHOUT: Mapping[str, Value] = {"updates_per_batch": 1, "mini_batches": 1, "whiten_advantages": False}


def check_name(name: str) -> str:
    """`name`, if a mix may have it. Raises LabError if the name is too long, has characters that are not allowed, or is
    the name of an algorithm."""
    if not NAME.fullmatch(name):
        raise LabError(f"{quoted(name)} cannot be the name of a mix: use 1 to {LONGEST} letters, digits, spaces or . , "
                       "+ - "
                       "_ ( ) ' /, without a space at either end.")
    for kind in kinds.KINDS.values():
        for row in kind.algorithms.values():
            if name.casefold() in (row.key.casefold(), row.label.casefold()):
                raise LabError(f"{name} is the name of an algorithm of the lab: choose another name for your mix.")
    return name


def can_be_mixed(row: Algorithm) -> bool:
    """True if a row is one of choices, so that others may be taken; it has all knobs that it has in the LLM lab."""
    base = kinds.kind("llm").algorithms.get(row.key)
    return base is not None and row.loop in LOOPS and {knob.key for knob in base.knobs} <= {
        knob.key for knob in row.knobs}


@cache
def with_every_knob(algorithm: str) -> Algorithm:
    """The row `algorithm` of language models, with every knob that its loop has; those of its own keep their defaults.
    Raises LabError if there is no such row, or it is not one of choices."""
    base = kinds.algorithm(algorithm)
    if not can_be_mixed(base):
        able = " or ".join(LOOPS)
        raise LabError(f"{base.label} has no choices to mix: begin from an algorithm of the loop {able}, such as grpo "
                       "or dpo.")
    known = {knob.key: knob for knob in base.knobs}
    for row in kinds.kind("llm").algorithms.values():
        if row.loop == base.loop:
            known |= {knob.key: knob.with_default(_WITHOUT.get(knob.key, knob.default)) for knob in row.knobs
                      if knob.key not in known}
    for family in choices.FAMILIES:
        for knob in choices.own_knobs(family).values() if family.key in known else ():
            known.setdefault(knob.key, knob)
    return replace(base, knobs=tuple(known.values()))


def idle(algorithm: str, key: str, values: Mapping[str, Value]) -> bool:
    """True if the knob `key` of a mix that began from `algorithm` belongs to choices that were not taken."""
    return bool(inactive.unused(key, values) or (key in _extra(algorithm) and inactive.reason(key, values)))


@cache
def _extra(algorithm: str) -> frozenset[str]:
    """The keys of the knobs that a mix of this algorithm has and the algorithm itself lacks."""
    return frozenset(knob.key for knob in with_every_knob(algorithm).knobs) - {
        knob.key for knob in kinds.algorithm(algorithm).knobs}


def row(algorithm: str, name: str, values: Mapping[str, Value]) -> Algorithm:
    """The row of the mix `name` that began from the row `algorithm`; `values` are its knobs. Raises LabError as
    `with_every_knob`, or if a value names an unknown choice."""
    base = with_every_knob(algorithm)
    filled = {knob.key: values.get(knob.key, knob.default) for knob in base.knobs}
    return _row(algorithm, name, tuple(filled.items()))


@lru_cache(maxsize=256)  # every value of every knob that somebody moves is another one
def _row(algorithm: str, name: str, items: tuple[tuple[str, Value], ...]) -> Algorithm:
    base, values = with_every_knob(algorithm), dict(items)
    return replace(base, label=name, latex=equation(base.loop, values), models=_models(base.loop, values),
                   panels=_panels(base, values), summary=f"A mix of your own, begun from {base.label}.",
                   paper=f"A mix of your own. {base.label}: {base.paper}",
                   watch=f"Compare it with {base.label} over several seeds: one run is not enough.")


def _models(loop: str, values: Mapping[str, Value]) -> tuple[str, ...]:
    """The models that the choices need. Online the reference is always held: the KL to it is measured at β = 0 too."""
    if loop == "online":
        return ("policy", "reference", *(["critic"] if _advantage(values).critic else []))
    return ("policy", *(["reference"] if _with_reference(values) else []))


def _advantage(values: Mapping[str, Value]) -> Advantage:
    return choices.ADVANTAGE[str(values["advantage"])]


def _with_reference(values: Mapping[str, Value]) -> bool:
    return any(choices.PREFERENCE_LOSS[name].reference for name in choices.losses_of(values))


def _surrogate(key: str) -> Callable[[Mapping[str, Value]], bool]:
    return lambda values: values["surrogate"] == key


# Charts that only some choices fill.
_ONLINE: Mapping[str, Callable[[Mapping[str, Value]], bool]] = {
    "zero_variance": lambda values: _advantage(values).group or int(values["group_size"]) > 1,
    "clip": lambda values: bool(choices.SURROGATE[str(values["surrogate"])].cut),
    "ratio": lambda values: choices.SURROGATE[str(values["surrogate"])].needs_ratio,
    **{f"{SURROGATE}_{member.key}": _surrogate(member.key) for member in choices.SURROGATE if member.logs},
    "selection": lambda values: values["selection"] != "everything",
    "rounds": lambda values: choices.SELECTION[str(values["selection"])].refills,
    "explained_variance": lambda values: _advantage(values).critic,
    "critic": lambda values: _advantage(values).critic,
}
_PREFERENCE: Mapping[str, Callable[[Mapping[str, Value]], bool]] = {
    "kl": _with_reference,
    "mismatched_kl": lambda values: any(choices.PREFERENCE_LOSS[name].mismatched for name in choices.losses_of(values)),
}


def _panels(base: Algorithm, values: Mapping[str, Value]) -> tuple[str, ...]:
    """The charts of the row that the choices fill, and before those of the machine what else they fill."""
    filled = {panel: fills(values) for panel, fills in (_ONLINE if base.loop == "online" else _PREFERENCE).items()}
    kept = [panel for panel in base.panels if filled.get(panel, True)]
    last = kept.index("loss")
    return (*kept[:last], *(panel for panel, there in filled.items() if there and panel not in kept), *kept[last:])
