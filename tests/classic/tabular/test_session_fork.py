"""The fork of a session in a maze: with common random numbers it is its parent over again, else it differs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from labcore.catalog.maze import ALGORITHMS
from labcore.classic.tabular.session import TabularSession
from labcore.runs.spec.run_spec import make
from tests.classic.forks import child_of, saved_at


@pytest.mark.parametrize("method", ALGORITHMS)
def test_a_fork_with_common_random_numbers_is_its_parent_over_again(method, tmp_path):
    spec = make(kind="maze", algorithm_key=method, task_key="slippery", steps=12, knobs={"pace": 0})
    records = saved_at(TabularSession.start(spec), 5, tmp_path / "at")

    def fork(**changes):
        child = TabularSession.start(spec, resume=tmp_path / "at").fork(child_of(spec, **changes))
        return [record for record in child.run() if record is not None]

    assert fork() == records[5:] and len(records) == 12
    if spec.row.loop != "planning":  # which draws no random numbers
        fresh = [fork(twin=False, seed=seed) for seed in (5, 5, 6)]
        assert fresh[0] == fresh[1] != fresh[2] and fresh[0] != records[5:]


def test_a_settled_plan_goes_on_only_where_something_is_new():
    spec = make(kind="maze", algorithm_key="value_iteration", task_key="textbook", steps=500, knobs={"pace": 0})
    settled = TabularSession.start(spec)
    count = len(list(settled.run()))
    more = child_of(spec, steps=1000)
    assert list(settled.fork(more).run()) == []
    far = list(settled.fork(replace(more, knobs={**spec.knobs, "gamma": 0.99})).run())
    assert len(far) > 1 and far[0].step == count + 1
    other = settled.fork(replace(more, algorithm="policy_iteration"))
    assert len(list(other.run())) > 0 and np.allclose(other.sweep.values, settled.sweep.values, atol=1e-3)


def test_a_policy_gradient_begins_with_the_values_of_the_plan_that_it_forks():
    spec = make(kind="maze", algorithm_key="value_iteration", task_key="textbook", steps=3, knobs={"pace": 0})
    plan = TabularSession.start(spec)
    assert len(list(plan.run())) == 3 and plan.sweep.values.any()
    key = next(key for key, row in ALGORITHMS.items() if row.learner.endswith("PolicyLearner"))
    child = plan.fork(child_of(make(kind="maze", algorithm_key=key, task_key="textbook", steps=9, knobs={"pace": 0})))
    assert np.array_equal(child.learner.tables.values, plan.sweep.values) and not child.learner.tables.theta.any()
