"""The fork of a deep session: with common random numbers it is its parent over again, else it differs."""

import itertools

import pytest
import torch

from labcore.catalog.cartpole import ALGORITHMS
from labcore.classic.deep.session import DeepSession
from tests.classic.forks import child_of, saved_at
from tests.every import now

TASKS = [*zip(ALGORITHMS, itertools.cycle(["CartPole-v1", "FrozenLake-v1"]), strict=False)]


@pytest.mark.parametrize("method, task", now(TASKS, *(each for each in TASKS if each[0] in ("ppo", "dqn"))))
def test_a_deep_method(start, method, task, tmp_path):
    session = start(method, task=task, steps=3)
    records = saved_at(session, 2, tmp_path / "at")

    def fork(**changes):
        parent = DeepSession.start(session.spec, resume=tmp_path / "at")
        return parent.fork(child_of(session.spec, **changes)).run()

    assert list(fork()) == records[2:]
    fresh = [next(fork(twin=False, seed=seed)) for seed in (5, 5, 6)]
    assert fresh[0] == fresh[1] != fresh[2] and fresh[0] != records[2]


def test_what_two_deep_methods_share_goes_on_and_the_rest_begins_anew(start):
    parent = start("ppo", {"kl_target": 1e-6})
    list(parent.run())
    moments = parent.optimizers["critic"].state_dict()["state"]
    a2c, trpo = (parent.fork(start(method, {"environments": 4}, parent=("p", 4), steps=6).spec)
                 for method in ("a2c", "trpo"))
    for child in (a2c, trpo):
        for name, network in parent.networks.items():
            for mine, theirs in zip(child.networks[name].parameters(), network.parameters(), strict=True):
                assert torch.equal(mine, theirs) and mine is not theirs
        assert (child.step, child.env_steps, child.best_step) == (4, parent.env_steps, parent.best_step)
    assert torch.equal(trpo.optimizers["critic"].state_dict()["state"][0]["exp_avg"], moments[0]["exp_avg"])
    assert a2c.optimizers["critic"].state_dict()["state"] == {}  # RMSprop has no use for Adam's moments
    assert parent.numbers and not a2c.numbers


def test_random_numbers_continue_in_a_fork_only_where_they_are_common(start):
    parent = start("ppo")
    list(parent.run())
    state = parent.generator.get_state()
    again, other = (parent.fork(child_of(parent.spec, twin=twin, seed=9)) for twin in (True, False))
    assert torch.equal(again.generator.get_state(), state)
    fresh = DeepSession.start(child_of(parent.spec, twin=False, seed=9))
    assert torch.equal(other.generator.get_state(), fresh.generator.get_state())
    assert not torch.equal(other.generator.get_state(), state)


def test_a_fork_keeps_the_replay(start):
    parent = start("dqn")
    list(parent.run())
    child, kept = parent.fork(child_of(parent.spec)), parent.replay.tensors()
    assert kept and all(torch.equal(value, kept[key]) for key, value in child.replay.tensors().items())
    assert any(value.count_nonzero() for value in kept.values())
