"""Plan the runs of a comparison: several algorithms from one start, or one algorithm with several values of its knobs.
Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from app import algorithms
from labcore.catalog import kinds
from labcore.catalog.knob import Knob, Value
from labcore.catalog.metrics import METRICS
from labcore.catalog.mix.row import check_name, with_every_knob
from labcore.errors import LabError
from labcore.runs.files.untrusted import json_of
from labcore.runs.halving import FACTORS, Halving
from labcore.runs.spec.checks import WHOLE
from labcore.runs.spec.run_spec import RunSpec, base_spec

MOST_SEEDS = 100
SUGGESTED = 5  # values of a knob that a sweep starts from


def values_in(knob: Knob, text: str) -> list[Value]:
    """The values of a knob written as "0, 0.02, 0.1". Raises LabError if there is no value, or one is invalid or given
    twice."""
    words = [word for word in re.split(r"[,;\s]+", text.strip()) if word]
    if not words:
        raise LabError(f"The sweep has no values of {knob.name}. Enter some, for example {written(suggested(knob))}.")
    values = [knob.parse(word) for word in words]
    if twice := next((value for value in values if values.count(value) > 1), None):
        raise LabError(f"The sweep has {knob.name} = {twice} twice. Enter each value once.")
    return values


def suggested(knob: Knob) -> list[Value]:
    """A few values over the knob's usual range, its default among them."""
    if knob.choices:
        return list(knob.choices[:SUGGESTED])
    if knob.type is bool:
        return [False, True]
    if not knob.safe:
        return [knob.default]
    low, high = map(float, knob.safe)
    shares = [place / (SUGGESTED - 1) for place in range(SUGGESTED)]
    if knob.scale == "log":
        spread = [float(f"{low * (high / low) ** share:.1g}") for share in shares]
    else:
        spread = [float(f"{low + (high - low) * share:.2g}") for share in shares]
    if knob.default not in spread:  # in place of its neighbour; the ends stay, or where it lies beyond one, that goes
        default = float(knob.default)
        inside = spread[1:-1] if low < default < high else spread

        def away(value: float) -> float:
            return abs(math.log(value / default)) if knob.scale == "log" and default > 0 else abs(value - default)

        spread[spread.index(min(inside, key=away))] = default
    return sorted({knob.type(value) for value in spread})


def written(values: Iterable[Value]) -> str:
    """Values as `values_in` reads them."""
    return ", ".join(f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool)
                     else str(value) for value in values)


def interleaved(settings: Sequence[Sequence[RunSpec]]) -> list[RunSpec]:
    """The runs of several settings in the order of their seeds: all settings with the first seed, then all with the
    next. So a comparison that is cut short still has complete seeds."""
    return [spec for seed in zip(*settings, strict=True) for spec in seed]


def start_of(specs: Sequence[RunSpec]) -> str:
    """The start that the runs share, in words."""
    bases = {base.hash() if (base := base_spec(spec)) else None for spec in specs if spec.row.loop != "sft"}
    if specs and specs[0].kind == "exact":
        return "All runs start from the same policy and use the same reference, whatever their seed."
    if specs and specs[0].kind != "llm":
        return ("With the same seed, all runs have the same environment, and networks of the same shape have the same "
                "initial weights.")
    if len(bases) == 1:
        who = "all" if all(spec.row.loop == "online" for spec in specs) else "those that sample during training"
        return f"All runs start from the same base model. With the same seed, {who} get the same prompts at each step."
    return ("The runs start from different base models, because a setting of the base differs, so their numbers are "
            "less comparable.")


def moved(algorithms: Mapping[str, RunSpec]) -> list[str]:
    """The knobs that are not at their defaults, in words, by algorithm."""
    parts = []
    for spec in algorithms.values():
        changes = [f"{knob.name} {written([spec.knobs[knob.key]])}" for knob in spec.declared
                   if spec.knobs[knob.key] != knob.default]
        if changes:
            parts.append(f"{spec.row.label}: {', '.join(changes)}")
    return parts


def to_link(way: str, kind: str, fields: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    """The settings of a plan that differ from the defaults, as text for a link; empty if none differ."""
    moved = {place: {key: value for key, value in values.items() if value != usual["knobs"].get(place, {}).get(key)}
             for place, values in fields["knobs"].items()}
    parts = {"way": way, "kind": kind, **fields, "knobs": {place: values for place, values in moved.items() if values}}
    usual = {"way": "algorithms", "kind": "llm", **usual, "knobs": {}}
    apart = {key: value for key, value in parts.items() if key in LINKED and value != usual[key]}
    return json.dumps(apart, ensure_ascii=False, separators=(",", ":"), sort_keys=True) if apart else ""


def of_link(text: str) -> dict[str, Any]:
    """The fields that `to_link` wrote; the form checks whether they fit together. Raises LabError if the text is no
    such link."""
    try:
        found = json_of(text)
        if not isinstance(found, dict) or not all(key in LINKED and LINKED[key](value) for key, value in found.items()):
            raise ValueError
        if found.get("mix"):
            with_every_knob(found.get("algorithm", kinds.kind("llm").algorithm))
    except (LabError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise LabError("The comparison in the link cannot be read, so the form shows its defaults. Copy the link "
                       "again.") \
            from error
    return found


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _whole(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _knobs(value: Any) -> bool:
    """{"algorithm:task": {knob: value}}, of a mix "algorithm:task|name"; each value one that its knob can be."""
    for place, values in value.items():
        algorithm, _, task = place.partition("|")[0].partition(":")
        (kind, *_) = [row for row in kinds.KINDS.values()
                      if algorithm in row.algorithms and (task in row.tasks or row.any_task)]
        known = {knob.key: knob for knob in algorithms.knobs_at(place, kind)}
        for key in values:
            values[key] = known[key].check(values[key])
    return True


# What of a plan is in a link, and whether a value can be one; the user's own files are not.
LINKED: dict[str, Callable[[Any], bool]] = {
    "way": lambda value: value in ("algorithms", "sweep"), "kind": lambda value: value in kinds.KINDS,
    "task": lambda value: isinstance(value, str) and bool(value), "model": lambda value: isinstance(value, str),
    "algorithm": lambda value: any(value in row.algorithms for row in kinds.KINDS.values()), "algorithms": _texts,
    "seeds": _whole(1, MOST_SEEDS), "seed": _whole(*WHOLE["seed"]),
    "limit": lambda value: value is None or _whole(*WHOLE["steps"])(value),
    "axes": lambda value: all(_texts(pair) and len(pair) == 2 for pairs in value.values() for pair in pairs),
    "early": lambda value: value is None or (
        value.keys() == Halving.__annotations__.keys() and value["metric"] in METRICS
        and _whole(*WHOLE["steps"])(value["min_steps"]) and _whole(*FACTORS)(value["factor"])),
    "knobs": _knobs, "mix": lambda value: not value or bool(check_name(value)),
}
