"""Group runs by their setting: runs of one group differ by their seed only, and each seed counts once.

A group has a short label, which says what sets it apart from the others. Of two runs with one seed the longer is taken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from labcore.catalog import choices
from labcore.catalog.mix import row as mixed
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.traces import WHERE, Trace, setting

_NOT_CONFIG = ("knobs", "seed")
_UNSAID = {"twin": True}  # settings of a fork that a label leaves out
_OF_ONE = {"seed", "data_seed", "run_name", "output_dir", "logging_dir"}  # settings that differ between repetitions
_PARENT, CHANGED = "parent", "changed mid-run"  # keys of a setting that are no knobs
Changes = Sequence[tuple[str, Any, int]]  # a setting's value of CHANGED: knob, value, the step after which


@dataclass(frozen=True)
class Group:
    """Runs of one setting, `seeds` apart. `repeats` are runs left out: their seed is there already.

    `config` are the setting's keys and values; for an imported group there is none.
    """

    label: str
    traces: tuple[Trace, ...]
    repeats: tuple[str, ...]
    config: Mapping[str, Any]

    @property
    def imported(self) -> bool:
        return self.traces[0].imported

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(trace.spec.seed for trace in self.traces if trace.spec)

    def until(self, axis: str, place: float) -> Group:
        """A copy whose runs end at a place of an axis."""
        return replace(self, traces=tuple(trace.until(axis, place) for trace in self.traces))


def by_key(key: str, value: Any, spec: RunSpec) -> str:
    """A setting in a label under its key, as in files and on the command line."""
    return f"{key} {_shown(value)}"


Words = Callable[[str, Any, RunSpec], str]
Named = Callable[[RunSpec], str]


def unnamed(spec: RunSpec) -> str:
    """No name for the settings of a run, as in files and on the command line."""
    return ""


def groups(traces: Sequence[Trace], words: Words = by_key, named: Named = unnamed) -> list[Group]:
    """The traces by setting, in the order of their first runs. Knobs changed mid-run are part of the setting.

    `words` writes a setting with its value in the labels. `named` returns one name for all settings of a run, such as
    the name of a preset, which the label has in their place.
    """
    found: dict[str, list[Trace]] = {}
    for trace in traces:
        found.setdefault(_setting(trace), []).append(trace)
    kept = [_one_per_seed(same) for same in found.values()]
    configs = [_config(same) for same, _ in kept]
    labels = _labels([same[0] for same, _ in kept], configs, words, named)
    return [Group(label, tuple(same), tuple(repeats), config)
            for label, (same, repeats), config in zip(labels, kept, configs, strict=True)]


def differing(found: Sequence[Group]) -> dict[str, tuple[Any, ...]]:
    """The keys of the settings that differ between groups, with each group's value; None where it has no such key."""
    keys = dict.fromkeys(key for group in found for key in group.config)
    columns = {key: tuple(group.config.get(key) for group in found) for key in keys}
    return {key: values for key, values in columns.items()
            if len({json.dumps(value, default=str) for value in values}) > 1}


def apart(found: Sequence[Group]) -> dict[str, tuple[Any, ...]]:
    """The knobs, the task and the model in which at least two groups differ, so that the comparison is not on equal
    terms. If the algorithms differ, the choices that define an algorithm are left out."""
    columns = differing(found)
    own = {family.key for family in choices.FAMILIES} if "algorithm" in columns else set()
    left_out = {"algorithm", "kind", "mix", _PARENT, "twin", CHANGED, *WHERE, *own}
    return {key: values for key, values in columns.items() if key not in left_out and
            len({json.dumps(value, default=str) for value in values if value is not None}) > 1}


def _setting(trace: Trace) -> str:
    """The settings that the runs of a group share, as text."""
    if trace.spec is None:
        return f"imported {trace.label}"
    if trace.spec.kind_row.elsewhere:
        return json.dumps([trace.spec.tool, trace.spec.task, _named_knobs(trace.spec), trace.origin, trace.changes])
    return json.dumps([setting(trace.spec), trace.origin, trace.changes])


def _named_knobs(spec: RunSpec) -> dict[str, Any]:
    """Return a watched run's settings, without its seed and its folders."""
    return {key: value for key, value in spec.knobs.items() if key not in _OF_ONE}


def _config(same: Sequence[Trace]) -> dict[str, Any]:
    """The setting's keys and values: algorithm and task first, then the knobs, what was changed mid-run last.

    Where runs of one group were computed differently, all of it is named: "1, 4". Knobs of choices that a mix did not
    take are left out.
    """
    trace = same[0]
    if trace.spec is None:
        return {}
    if trace.spec.kind_row.elsewhere:
        moved = [(knob, value, step) for (step, knob), value in trace.moves.items()]
        return {"algorithm": trace.spec.algorithm, **_named_knobs(trace.spec), **({CHANGED: moved} if moved else {})}
    fields = json.loads(trace.spec.to_json())
    first = {key: fields[key] for key in ("kind", "algorithm", "task", "model")}
    if trace.spec.parent:
        fields["parent"] = "{} at step {}".format(*trace.spec.parent)
    rest = {key: value for key, value in fields.items() if key not in _NOT_CONFIG}
    for key in WHERE:
        found = dict.fromkeys(getattr(each.spec, key) for each in same)
        rest |= {key: ", ".join(map(str, found))} if len(found) > 1 else {}
    moved = [(knob, value, step) for (step, knob), value in trace.moves.items()]
    spec = trace.spec
    knobs = {key: value for key, value in fields["knobs"].items() if not (
        spec.mix and mixed.idle(spec.algorithm, key, spec.knobs))}
    return first | knobs | rest | ({CHANGED: moved} if moved else {})


def changes_text(changes: Changes, name: Callable[[str], str] = str) -> str:
    """
    >>> changes_text([("beta", 0.5, 1), ("clip_low", 0.1, 2)])
    'beta=0.5 after step 1; clip_low=0.1 after step 2'
    """
    return "; ".join(f"{name(knob)}={value} after step {step}" for knob, value, step in changes)


def _one_per_seed(same: Sequence[Trace]) -> tuple[list[Trace], list[str]]:
    """(one trace per seed, the runs left out). A run made twice is one observation, not two."""
    longest: dict[Any, Trace] = {}
    for trace in same:
        seed = trace.run if trace.spec is None or trace.spec.kind_row.elsewhere else trace.spec.seed
        if seed not in longest or trace.axes["step"].size > longest[seed].axes["step"].size:
            longest[seed] = trace
    kept = sorted(longest.values(), key=lambda trace: trace.spec.seed if trace.spec else 0)
    return kept, [trace.run for trace in same if trace not in kept]


def _labels(firsts: Sequence[Trace], configs: Sequence[Mapping[str, Any]], words: Words, named: Named) -> list[str]:
    """A short name for each group: its algorithm, and what sets it apart from others of that algorithm."""
    labels = []
    for first, config in zip(firsts, configs, strict=True):
        if first.spec is None:
            labels.append(f"{first.label} (imported)")
            continue
        if first.spec.kind_row.elsewhere:  # its name says all, and its settings may be hundreds
            labels.append(_watched(first, firsts))
            continue
        like = [other for other in configs if _algorithm(other) == _algorithm(config)]
        kin = [other for other in like if other.get("kind") == config["kind"]]  # the others' tasks say all they need
        apart = [key for key, value in config.items() if value is not None and key not in WHERE and any(
            other.get(key, _UNSAID.get(key)) != value for other in (like if key == "task" else kin))]
        parts = ", ".join(forked(first) if key == _PARENT else words(key, config[key], first.spec)
                          for key in [key for key in apart if key != CHANGED][:3])
        changed = "(knobs changed)" if CHANGED in apart else ""
        name = named(first.spec) if parts else ""
        labels.append(" ".join(filter(None, (name or f"{first.spec.row.label} {parts}".strip(), changed))))
    return [label if labels.count(label) == 1 else f"{label} ({first.title or first.run})"
            for label, first in zip(labels, firsts, strict=True)]


def _watched(trace: Trace, firsts: Sequence[Trace]) -> str:
    """Return the label of a watched run: its name, or its title if other runs have the same name."""
    assert trace.spec is not None, "a run of the store"
    several = sum(each.spec is not None and each.spec.task == trace.spec.task for each in firsts) > 1
    tool = f"({trace.spec.tool})" if trace.spec.tool else ""
    return " ".join(filter(None, (trace.title if several else trace.spec.task, tool, forked(trace))))


def forked(trace: Trace) -> str:
    """The part of a fork's label that names its parent and the step; empty for a run that is no fork."""
    if trace.spec is None or trace.spec.parent is None:
        return ""
    run_id, step = trace.spec.parent
    return f"from {trace.parent or run_id} at step {step}"


def _algorithm(config: Mapping[str, Any]) -> tuple[Any, Any]:
    """The algorithm of a run: a row, or a mix that began from it."""
    return config.get("algorithm"), config.get("mix")


def _shown(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else "/".join(map(str, value)) if isinstance(value, list) else \
        str(value)
    return text if len(text) <= 24 else f"{text[:23]}…"
