"""Map a trainer's names of metrics and settings to the lab's metrics, counters and knobs.

Metrics follow `labcore.runs.imports.layouts`. An unknown metric becomes `own/NAME`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from labcore.catalog.knob import Value
from labcore.catalog.metrics import OWN
from labcore.runs.imports.layouts import is_axis, known, layout_of
from labcore.runs.spec.run_spec import every_knob
from labcore.runs.store.cells import EXACT
from labcore.runs.store.rows import COUNTERS

LONGEST = 120  # characters of a name
MOST_SETTINGS = 500
_UNSAFE = re.compile(r'["\\\x00-\x1f\x7f-\x9f\ud800-\udfff]')  # characters that the store's JSON keys cannot have
_WORDS = {"nan": math.nan, "infinity": math.inf, "-infinity": -math.inf, "inf": math.inf, "-inf": -math.inf}

# Our knob -> its names in trainers. The last part of a nested name suffices if it is unambiguous.
KNOBS: dict[str, tuple[str, ...]] = {
    "learning_rate": ("lr", "actor_rollout_ref.actor.optim.lr", "actor_learning_rate"),
    "beta": ("kl_coef", "init_kl_coef", "kl_loss_coef", "algorithm.kl_ctrl.kl_coef",
             "actor_rollout_ref.actor.kl_loss_coef"),
    "group_size": ("num_generations", "n_samples_per_prompt", "actor_rollout_ref.rollout.n"),
    "clip_low": ("epsilon", "cliprange", "clip_ratio", "eps_clip", "actor_rollout_ref.actor.clip_ratio"),
    "clip_high": ("epsilon_high", "clip_ratio_high", "eps_clip_high"),
    "updates_per_batch": ("num_iterations", "ppo_epochs", "actor_rollout_ref.actor.ppo_epochs"),
    "temperature": ("actor_rollout_ref.rollout.temperature",),
    "max_new_tokens": ("max_completion_length", "response_length", "generate_max_len", "data.max_response_length"),
    "max_grad_norm": ("max_norm", "actor_rollout_ref.actor.grad_clip"),
    "gamma": (), "lam": ("gae_lambda", "lambd"),
}
STEPS = ("max_steps", "steps", "total_training_steps", "trainer.total_training_steps", "total_steps")
_KNOB_OF = {name: key for key, names in KNOBS.items() for name in (key, *names)}


@dataclass(frozen=True)
class Numbers:
    """A line's metrics under the lab's names. `metrics` may be NaN or infinite; `strange` are names without a number.
    `called` maps the lab's name to the trainer's name where they differ.
    """

    metrics: dict[str, float]
    counters: dict[str, float]
    strange: tuple[str, ...]
    called: dict[str, str] = field(default_factory=dict)


def numbers_of(said: Mapping[str, Any]) -> Numbers:
    """Return the metrics of a line that uses the trainer's names."""
    metrics: dict[str, float] = {}
    counters: dict[str, float] = {}
    called: dict[str, str] = {}
    strange = []
    for column, keys in _keys(tuple(map(str, said))):
        value = number(said[column])
        if value is None:
            strange += [] if said[column] is None else [column]
            continue
        for key in keys:
            (counters if key in COUNTERS else metrics)[key] = value
            if key not in (column, foreign(column)):
                called[key] = column
    return Numbers(metrics, counters, tuple(strange), called)


@lru_cache(maxsize=32)  # a trainer logs only a few different sets of names, which may be long
def _keys(columns: tuple[str, ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the key for each column. If several columns mean the same metric, the best name is used."""
    layout = layout_of(columns)
    best: dict[str, tuple[int, str]] = {}
    for column in columns:
        for key, rank in known(layout, column):
            if len(key) <= LONGEST and not _UNSAFE.search(key) and (key not in best or rank < best[key][0]):
                best[key] = rank, column
    found: dict[str, tuple[str, ...]] = dict.fromkeys(columns, ())
    for key, (_, column) in best.items():
        found[column] += (key,)
    return tuple((column, keys or (foreign(column),)) for column, keys in found.items()
                 if keys or not any(is_axis(axis, column) for axis in layout.axes))


def foreign(name: str) -> str:
    """Return the metric for a number that the lab does not know."""
    return OWN + (_UNSAFE.sub("_", name).strip() or "_")[:LONGEST]


def number(value: Any) -> float | None:
    """Convert a value to a number, including NaN and infinities, which lines have as texts; None if it is not one."""
    if isinstance(value, str):
        return _WORDS.get(value.strip().lower())
    if not isinstance(value, bool | int | float):
        return None
    return float(value) if abs(value) <= EXACT or isinstance(value, float) else None


# ---------------------------------------------------------------- settings

def settings(said: Mapping[str, Any]) -> dict[str, Value]:
    """Rename a trainer's settings to the lab's knobs with the same meaning; others keep their names. A setting that has
    the name of a knob but an impossible value, such as an unknown `advantage`, becomes `own/<name>`."""
    found: dict[str, Value] = {}
    for name, value in list(_flat(said, ""))[:MOST_SETTINGS]:
        key = _KNOB_OF.get(name) or _UNSAFE.sub("_", name)[:LONGEST]
        plain = value if isinstance(value, bool | str) else number(value)
        if isinstance(plain, float):
            plain = None if not math.isfinite(plain) else value
        if plain is not None:
            plain = plain[:1000] if isinstance(plain, str) else plain
            found[key if _may_be(key, plain) else foreign(name)] = plain
    return found


def _may_be(key: str, value: Value) -> bool:
    """True if no knob has this name, or if the knob can have this value, even outside its usual bounds."""
    knob = every_knob().get(key)
    if knob is None:
        return True
    if knob.choices:
        return value in knob.choices
    kinds = (int, float) if knob.type in (int, float) else knob.type
    return isinstance(value, kinds) and (knob.type is bool or not isinstance(value, bool))


def _flat(said: Mapping[str, Any], before: str) -> Any:
    for name, value in said.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", json.dumps(value)[:1000] if isinstance(value, list) else value


def steps_of(values: Mapping[str, Value]) -> int:
    """Return the planned number of steps; 0 if the trainer did not send it."""
    found = next((values[name] for name in STEPS if name in values), 0)
    return found if type(found) is int and 0 < found <= 10**9 else 0
