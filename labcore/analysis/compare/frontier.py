"""The reward–KL plane: the reward of each group against its KL to the reference.

A group is Pareto-optimal if no other group has as much reward at a smaller KL. Left out: a fitted curve through the
points.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from labcore.analysis.compare.curves import smoothed, thin
from labcore.analysis.compare.groups import Group
from labcore.analysis.compare.statistics import last_mean
from labcore.runs.traces import Trace


@dataclass(frozen=True)
class Point:
    """A group at its last rows: its mean cost and reward over its seeds, the (name, cost, reward) of each run, and
    whether it is Pareto-optimal."""

    label: str
    cost: float
    reward: float
    runs: tuple[tuple[str, float, float], ...]
    on_front: bool


def points(groups: Sequence[Group], reward: str = "reward", cost: str = "kl",
           beside: Collection[str] = ()) -> list[Point]:
    """Place the groups' last rows in the plane, with the Pareto front of their means. Groups without both are left out.

    If groups are compared at equal tokens, for example, cut them there first (`Group.until`). The front is made without
    the groups of the labels `beside`.
    """
    found = []
    for group in groups:
        runs = tuple((trace.run, _end(trace, cost), _end(trace, reward)) for trace in group.traces
                     if trace.column(cost)[0].size and trace.column(reward)[0].size)
        if runs:
            found.append((group.label, float(np.mean([run[1] for run in runs])),
                          float(np.mean([run[2] for run in runs])), runs))
    able = [each for each in found if each[0] not in beside]
    front = {able[index][0] for index in pareto([each[1] for each in able], [each[2] for each in able])}
    return [Point(*each, each[0] in front) for each in found]


def pareto(costs: Sequence[float], rewards: Sequence[float]) -> list[int]:
    """Indices of the points that no other one beats (as much reward, as little cost, one of them better), by cost.

    Equal points are both Pareto-optimal.
    """
    order = sorted(range(len(costs)), key=lambda index: (costs[index], -rewards[index]))
    front: list[int] = []
    for index in order:
        last = front[-1] if front else None
        if last is None or rewards[index] > rewards[last] or (costs[index], rewards[index]) == (
                costs[last], rewards[last]):
            front.append(index)
    return front


def path(trace: Trace, reward: str = "reward", cost: str = "kl", smoothing: float = 0.9,
         most: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """(cost, reward) of a run on its way, smoothed, (M,) each, M at most `most`: rows that have both."""
    steps, _, costs = smoothed(trace, cost, smoothing=smoothing)
    others, _, rewards = smoothed(trace, reward, smoothing=smoothing)
    _, left, right = np.intersect1d(steps, others, return_indices=True)
    costs, rewards = costs[left], rewards[right]
    if costs.size > most:
        rows = np.arange(costs.size, dtype=float)
        kept = np.union1d(thin(rows, costs, most // 2), thin(rows, rewards, most // 2))
        costs, rewards = costs[kept], rewards[kept]
    return costs, rewards


def _end(trace: Trace, metric: str) -> float:
    _, values, steps = trace.column(metric)
    return last_mean(steps, values)
