"""How a row of the table of language-model algorithms is made: the knobs of its loop with its own defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from labcore.catalog.algorithm import Algorithm
from labcore.catalog.knob import Knob, Value
from labcore.catalog.llm.knobs import ONLINE, PREFERENCE, REWARD_MODEL, SFT
from labcore.catalog.llm.upkeep import UPKEEP

KNOBS = {"online": ONLINE, "preference": PREFERENCE, "reward_model": REWARD_MODEL, "sft": SFT}

ONLINE_PANELS = ("reward", "exact_match", "kl", "zero_variance", "entropy", "clip", "surrogate", "length", "truncated")
LAST_PANELS = ("grad_norm", "loss", "speed", "memory")
BOUNDS = ("clip_delta", "dual_clip")  # what the clip may have on top of its two sides
CLIP = ("clip_low", "clip_high", *BOUNDS)


def row(key: str, label: str, loop: str, *, defaults: Mapping[str, Value] = MappingProxyType({}),
        extra_knobs: tuple[Knob, ...] = (), without: tuple[str, ...] = (), plain: tuple[str, ...] = (),
        **rest: Any) -> Algorithm:
    """A row whose knobs are its loop's (and `extra_knobs`), less `without`, with `defaults` of its own. Those of
    `plain` are no advanced ones of this row."""
    knobs = tuple(replace(knob.with_default(defaults.get(knob.key, knob.default)),
                          advanced=knob.advanced and knob.key not in plain)
                  for knob in (*KNOBS[loop], *UPKEEP[loop], *extra_knobs) if knob.key not in without)
    return Algorithm(key, label, loop, knobs=knobs, **rest)


def online_panels(*story: str, less: tuple[str, ...] = (), more: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The panels of an online algorithm: those that tell its `story`, then all others, `less` some, with `more`."""
    others = (*(panel for panel in ONLINE_PANELS if panel not in less), *more, *LAST_PANELS)
    return (*story, *(panel for panel in others if panel not in story))
