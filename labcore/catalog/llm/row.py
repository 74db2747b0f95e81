"""Make a row of the table of language-model algorithms: the knobs of its loop with its own defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from labcore.catalog import choices
from labcore.catalog.algorithm import Algorithm
from labcore.catalog.knob import Knob, Value
from labcore.catalog.llm.knobs import ONLINE, PREFERENCE, PRM, REWARD_MODEL, SFT
from labcore.catalog.llm.upkeep import UPKEEP

KNOBS = {"online": ONLINE, "preference": PREFERENCE, "prm": PRM, "reward_model": REWARD_MODEL, "sft": SFT}

SURROGATE = "surrogate"  # stands for the chart of the surrogate that a row chooses
ONLINE_PANELS = ("reward", "exact_match", "kl", "zero_variance", "entropy", "clip", SURROGATE, "length", "truncated")
LAST_PANELS = ("grad_norm", "loss", "speed", "memory")
BOUNDS = ("clip_delta", "dual_clip")  # what the clip may have on top of its two sides
CLIP = ("clip_low", "clip_high", *BOUNDS)


def row(key: str, label: str, loop: str, *, defaults: Mapping[str, Value] = MappingProxyType({}),
        extra_knobs: tuple[Knob, ...] = (), without: tuple[str, ...] = (), plain: tuple[str, ...] = (),
        panels: tuple[str, ...], **rest: Any) -> Algorithm:
    """A row whose knobs are its loop's, those that its choices bring along and `extra_knobs`, less `without`, with
    `defaults` of its own. Those of `plain` are no advanced ones of this row."""
    known = {knob.key: knob for knob in (*KNOBS[loop], *UPKEEP[loop])}
    chosen = {key: knob.default for key, knob in known.items()} | dict(defaults)
    brought = [knob for family in choices.FAMILIES for choice in choices.chosen(family, chosen)
               for knob in choice.brings]
    known |= {knob.key: knob for knob in (*brought, *extra_knobs) if knob.key not in known}
    own = (knob.with_default(defaults.get(key, knob.default)) for key, knob in known.items() if key not in without)
    knobs = tuple(replace(knob, advanced=False) if knob.key in plain else knob for knob in own)
    return Algorithm(key, label, loop, knobs=knobs, panels=_filled(panels, chosen), **rest)


def _filled(panels: tuple[str, ...], chosen: Mapping[str, Value]) -> tuple[str, ...]:
    """The panels with the chart of the chosen surrogate in its place; without a clip, without the chart of that."""
    if "surrogate" not in chosen:
        return panels
    surrogate = choices.SURROGATE[str(chosen["surrogate"])]
    own = {SURROGATE: (f"{SURROGATE}_{surrogate.key}",) if surrogate.logs else (),
           "clip": ("clip",) if surrogate.cut else ()}
    return tuple(key for panel in panels for key in own.get(panel, (panel,)))


def online_panels(*story: str, more: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The panels of an online algorithm: those that tell its `story`, then all others, with `more`."""
    return (*story, *(panel for panel in (*ONLINE_PANELS, *more, *LAST_PANELS) if panel not in story))
