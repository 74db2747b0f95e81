"""Forks beside their parents: where they begin, and the difference after it, by hand."""

import numpy as np
import pytest

from labcore.analysis.compare import curves
from labcore.analysis.compare.groups import groups
from labcore.analysis.compare.loading import load
from labcore.runs.spec.session import Record
from labcore.runs.store.store import Store
from tests.analysis.compare import tools


def family(seeds: int = 1, step: int = 2):
    """Parents of 5 rows, and a fork of each after `step` that earns 0.1 more at each row."""
    store = Store()
    names = []
    for seed in range(seeds):
        rewards = [0.1 * row + 0.01 * seed for row in range(1, 6)]
        parent = tools.stored(store, rewards, seed=seed)
        child = tools.stored(store, [], seed=seed, parent=(parent, step), state="running", beta=0.2)
        for row in range(step + 1, 6):
            store.append(child, Record(row, 100 * row, {"reward": rewards[row - 1] + 0.1 * (row - step),
                                                        "updates": float(row)}), row)
        names += [parent, child]
    return load(store, names)


def test_a_fork_begins_exactly_on_its_parent():
    parent, child = family()
    above = curves.parents([parent, child])
    assert above == {child.run: parent} and curves.parents([child]) == {}
    for axis, first in (("step", 2), ("tokens", 200), ("seconds", 2)):
        x, raw, smooth = curves.rooted(child, parent, "reward", axis, 0.5)
        assert x[0] == first and raw[0] == pytest.approx(0.2)
        assert smooth[0] == pytest.approx((0.2 + 0.5 * 0.1) / 1.5)  # the parent's smoothed line there
        assert smooth[1] == raw[1] == pytest.approx(0.4)  # smoothing begins anew with the fork


def test_the_difference_to_the_parent_by_hand():
    parent, child = family()
    pair = groups([child])[0]
    x, apart = curves.against_parents(pair, curves.parents([parent, child]), "reward", "step")
    assert x.tolist() == [2, 3, 4, 5]
    assert apart[0].tolist() == pytest.approx([0, 0.1, 0.2, 0.3])


def test_each_fork_is_held_against_its_own_parent():
    traces = family(seeds=3)
    above = curves.parents(traces)
    forks = next(group for group in groups(traces) if curves.branched(group, above))
    assert len(forks.traces) == 3
    _, apart = curves.against_parents(forks, above, "reward", "step")
    np.testing.assert_allclose(apart, np.tile([0, 0.1, 0.2, 0.3], (3, 1)), atol=1e-12)


def test_nothing_beyond_where_the_parent_ends():
    parent, child = family()
    short = tools.trace([0.1, 0.2, 0.3], run=parent.run)
    x, apart = curves.against_parents(groups([child])[0], {child.run: short}, "reward", "step")
    assert np.isfinite(apart[0]).tolist() == [True, True, False, False] and x[-1] == 5


def test_the_difference_to_a_baseline_by_hand(store):
    runs = [tools.stored(store, [level + 0.1 * seed] * 3, seed=seed, algorithm=algorithm)
            for algorithm, level in (("grpo", 0.5), ("rloo", 0.2)) for seed in range(3)]
    grpo, rloo = groups(load(store, runs))
    x, middle, low, high = curves.against(grpo, rloo, "reward", "step")
    assert x.tolist() == [1, 2, 3] and middle.tolist() == pytest.approx([0.3] * 3)
    reach = 2.776 * (2 * 0.01 / 3) ** 0.5  # t(4; 97.5 %) by the square root of 2 · 0.1² / 3
    assert [*low, *high] == pytest.approx([0.3 - reach] * 3 + [0.3 + reach] * 3, abs=1e-4)
    assert curves.against(grpo, groups(load(store, runs[3:5]))[0], "reward", "step")[2] is None
