"""The fork of a session, for every method: a twin is its parent over again, random numbers can begin anew."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from labcore.catalog.cartpole import ALGORITHMS as DEEP
from labcore.catalog.maze import ALGORITHMS as TABULAR
from labcore.deep.session import DeepSession
from labcore.spec.run_spec import make
from labcore.tabular.session import Session as TabularSession


def child_of(spec, **changes):
    return replace(spec, parent=("parent", 2), **changes)


def saved_at(session, step: int, folder):
    """All records of a run, of which a checkpoint was made at `step`."""
    records = []
    for record in session.run():
        if record is not None:
            records.append(record)
            if record.step == step:
                folder.mkdir()
                session.save(folder)
    return records


@pytest.mark.parametrize("task", ["CartPole-v1", "FrozenLake-v1"])
@pytest.mark.parametrize("method", DEEP)
def test_a_deep_method(start, method, task, tmp_path):
    session = start(method, task=task)
    records = saved_at(session, 2, tmp_path / "at")

    def fork(**changes):
        parent = DeepSession.start(session.spec, resume=tmp_path / "at")
        return list(parent.fork(child_of(session.spec, **changes)).run())

    assert fork() == records[2:]
    fresh = [fork(twin=False, seed=seed) for seed in (5, 5, 6)]
    assert fresh[0] == fresh[1] != fresh[2] and fresh[0] != records[2:]


@pytest.mark.parametrize("method", TABULAR)
def test_a_tabular_method(method, tmp_path):
    spec = make(kind="maze", algorithm_key=method, task_key="slippery", steps=12, knobs={"pace": 0})
    records = saved_at(TabularSession.start(spec), 5, tmp_path / "at")

    def fork(**changes):
        child = TabularSession.start(spec, resume=tmp_path / "at").fork(child_of(spec, **changes))
        return [record for record in child.run() if record is not None]

    assert fork() == records[5:] and len(records) == 12
    if spec.row.loop != "planning":  # which knows no chance
        fresh = [fork(twin=False, seed=seed) for seed in (5, 5, 6)]
        assert fresh[0] == fresh[1] != fresh[2] and fresh[0] != records[5:]


def test_what_two_deep_methods_share_goes_on_and_the_rest_begins_anew(start):
    parent = start("ppo", {"kl_target": 1e-6})
    list(parent.run())
    moments = parent.optimizers["critic"].state_dict()["state"]
    a2c, trpo = (parent.fork(start(method, {"environments": 8}, parent=("p", 4), steps=6).spec)
                 for method in ("a2c", "trpo"))
    for child in (a2c, trpo):
        for name, network in parent.networks.items():
            for mine, theirs in zip(child.networks[name].parameters(), network.parameters(), strict=True):
                assert torch.equal(mine, theirs) and mine is not theirs
        assert (child.step, child.env_steps, child.best_step) == (4, parent.env_steps, parent.best_step)
    assert torch.equal(trpo.optimizers["critic"].state_dict()["state"][0]["exp_avg"], moments[0]["exp_avg"])
    assert a2c.optimizers["critic"].state_dict()["state"] == {}  # RMSprop has no use for Adam's moments
    assert parent.numbers and not a2c.numbers


def test_a_settled_plan_goes_on_only_where_something_is_new():
    spec = make(kind="maze", algorithm_key="value_iteration", task_key="textbook", steps=500, knobs={"pace": 0})
    settled = TabularSession.start(spec)
    count = len(list(settled.run()))
    more = child_of(spec, steps=1000)
    assert list(settled.fork(more).run()) == []
    far = list(settled.fork(replace(more, knobs={**spec.knobs, "gamma": 0.99})).run())
    assert len(far) > 1 and far[0].step == count + 1
    judged = settled.fork(replace(more, algorithm="policy_iteration"))
    assert len(list(judged.run())) > 0 and np.allclose(judged.sweep.values, settled.sweep.values, atol=1e-3)
