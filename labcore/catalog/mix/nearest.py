"""Find the named algorithm nearest to a mix of choices, and the differences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from labcore.catalog import choices, inactive, kinds
from labcore.catalog.algorithm import Algorithm
from labcore.catalog.knob import Knob, Value
from labcore.catalog.llm.pretrained import SCRATCH, defaults
from labcore.catalog.task import Task

LOOPS = ("online", "preference")  # whose algorithms are rows of choices

# What an algorithm is made of, in the order of its step, and how a row that has no such knob has it. All else is a
# number of the same algorithm.
PARTS: Mapping[str, Value] = {
    "reward_source": "verifier", "step_reward": "each_step", "shaping": "none", "selection": "everything",
    "overlong_filter": False, "whiten_rewards": False, "advantage": "", "normalisation": "none",
    "whiten_advantages": False, "ratio": "none", "surrogate": "", "top_entropy_share": 1.0, "off_policy_threshold": 0.0,
    "importance_cap": 0.0, "importance_mode": "token_truncate", "recompute_logprobs": False, "kl_estimator": "",
    "kl_placement": "off", "adaptive_kl_target": 0.0, "entropy_target": 0.0, "aggregation": "", "sft_weight": 0.0,
    "pairs": "", "preference_loss": "", "second_loss": choices.NO_LOSS, "third_loss": choices.NO_LOSS,
    "divergence": "", "ld_alpha": 1.0,
    "pair_weighting": False, "single_step": False, "teacher_context": "nothing",
}


@dataclass(frozen=True)
class Difference:
    """A knob that has another value here (`own`) than in a named row (`theirs`)."""

    knob: Knob
    theirs: Value
    own: Value


@dataclass(frozen=True)
class Nearest:
    """A named row, the parts in which a mix differs from it, and the numbers; no parts: the mix is that algorithm."""

    row: Algorithm
    parts: tuple[Difference, ...]
    numbers: tuple[Difference, ...]


def nearest(base: str, values: Mapping[str, Value], task: Task, kind: str = "llm", weights: str = SCRATCH) -> Nearest:
    """The named row with the fewest differing parts, of the loop of the row `base` and able to learn `task`.

    Of several the row that the mix was begun from (`base`), else the first of the table. `values` are all knobs of the
    mix, `weights` is how these are learnt (`catalog.llm.pretrained`): the rows have their defaults for such weights.
    """
    begun = kinds.algorithm(base, kind)
    rows = [row for row in kinds.kind(kind).algorithms.values() if row.loop == begun.loop and row.learns(task)]
    found = {row.key: parts(row, values, task, weights) for row in rows}
    best = min(rows, key=lambda row: (len(found[row.key]), row.key != base))
    return Nearest(best, found[best.key], numbers(best, values, task, weights))


def parts(row: Algorithm, values: Mapping[str, Value], task: Task, weights: str = SCRATCH) -> tuple[Difference, ...]:
    """The parts in which `values` differ from a row. One that cannot act on either side is no difference."""
    theirs, own = _effective(_defaults(row, task, weights)), _effective(values)
    known = _parts_of(row.loop) | {knob.key: knob for knob in row.knobs if knob.key in PARTS}
    return tuple(Difference(known[key], theirs[key], own[key]) for key in PARTS
                 if key in known and theirs[key] != own[key] and _acts(key, theirs) and _acts(key, own))


def numbers(row: Algorithm, values: Mapping[str, Value], task: Task, weights: str = SCRATCH) -> tuple[Difference, ...]:
    """The row's other knobs that act here and are not at its defaults."""
    theirs = _defaults(row, task, weights)
    return tuple(Difference(knob, theirs[knob.key], values[knob.key]) for knob in row.knobs
                 if knob.key not in PARTS and values.get(knob.key, theirs[knob.key]) != theirs[knob.key]
                 and not inactive.reason(knob.key, values))


def _defaults(row: Algorithm, task: Task, weights: str) -> dict[str, Value]:
    own = {**task.own(row.loop, row.key), **{key: found.value for key, found in defaults(row, task, weights).items()}}
    return {knob.key: own.get(knob.key, knob.default) for knob in row.knobs}


@cache
def _parts_of(loop: str) -> dict[str, Knob]:
    return {knob.key: knob for row in kinds.kind("llm").algorithms.values() if row.loop == loop
            for knob in row.knobs if knob.key in PARTS}


def _effective(values: Mapping[str, Value]) -> dict[str, Value]:
    """All parts; with β = 0 there is no KL, wherever it would be."""
    found = {**PARTS, **values}
    return found | ({"kl_placement": "off"} if not found.get("beta", 0) else {})


def _acts(key: str, values: Mapping[str, Value]) -> bool:
    return key == "kl_placement" or not inactive.reason(key, values)
