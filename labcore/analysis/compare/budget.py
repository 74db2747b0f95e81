"""Choose the points at which runs are compared: at equal tokens first, and at the end only where groups used about as
much.

`spent` is what each group's runs had used up at their last rows, the mean over seeds: group -> axis -> amount.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from labcore.runs.store.rows import RunRow
from labcore.runs.traces import AXES, Trace

FINAL = "final"
EQUAL = ("tokens", "env_steps", "updates", "seconds")  # the first that all runs count is the default
SHARED = "Some of these runs ran at the same time on one machine, which affects their times."
CLOSE = 1.1  # costs that differ by less are about the same

Spent = Mapping[str, Mapping[str, float]]


def spent_by(groups: Mapping[str, Sequence[Trace]]) -> dict[str, dict[str, float]]:
    """The amount of every axis that each group used, where all of its runs count it; groups by their labels."""
    return {label: {axis: float(np.mean([np.nanmax(trace.axes[axis]) for trace in traces]))
                    for axis in EQUAL if all(_counts(trace.axes.get(axis)) for trace in traces)}
            for label, traces in groups.items()}


def _counts(column: np.ndarray | None) -> bool:
    return column is not None and bool(np.isfinite(column).any())


def shared_time(runs: Iterable[RunRow]) -> str:
    """Return `SHARED` where two of the runs ran at the same time on one machine, which affects their seconds."""
    spans: dict[str | None, list[tuple[float, float]]] = {}
    for run in runs:
        if run.started is not None:
            spans.setdefault(run.host, []).append((run.started, np.inf if run.ended is None else run.ended))
    apart = all(first[1] <= then[0] for each in spans.values() for first, then in pairwise(sorted(each)))
    return "" if apart else SHARED


def measures(equal: Collection[str], spent: Spent) -> list[str]:
    """List the points at which a verdict can be given, the usual one first; `equal` are the axes with equal places.

    >>> measures(["updates", "tokens"], {"a": {"tokens": 100.0}, "b": {"tokens": 105.0}})
    ['tokens', 'updates', 'final']
    >>> measures(["updates", "tokens"], {"a": {"tokens": 100.0}, "b": {"tokens": 400.0}})
    ['tokens', 'updates']
    """
    return [axis for axis in EQUAL if axis in equal] + ([] if uneven(spent) else [FINAL])


def uneven(spent: Spent) -> tuple[str, str, str] | None:
    """(axis, the group that used up the most of it, the group that used up the least) if these amounts are not about
    the same.

    By the first axis that all groups count; None if the amounts are about the same, or the groups count nothing in
    common.
    """
    axis = next((axis for axis in EQUAL if spent and all(axis in each for each in spent.values())), None)
    if axis is None:
        return None
    most, least = (pick(spent, key=lambda label: spent[label][axis]) for pick in (max, min))
    return (axis, most, least) if spent[most][axis] > CLOSE * spent[least][axis] else None


def why_not_at_the_end(spent: Spent) -> str:
    """Why groups are not judged at their ends, in a sentence; empty where they are.

    >>> why_not_at_the_end({"PPO": {"tokens": 48000.0}, "GRPO": {"tokens": 12000.0}})
    'No verdict at the end: PPO used 48,000 tokens, GRPO 12,000 (4.0 to 1).'
    """
    if not (found := uneven(spent)):
        return ""
    axis, most, least = found
    more, less = spent[most][axis], spent[least][axis]
    did = "took" if axis == "seconds" else "made" if axis == "updates" else "used"
    ratio = f"{more / less:.1f} to 1" if less else "against none"
    return f"No verdict at the end: {most} {did} {more:,.0f} {AXES[axis]}, {least} {less:,.0f} ({ratio})."
