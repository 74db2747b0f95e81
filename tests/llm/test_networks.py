"""The table of networks: what each row holds, how each begins, and which of them a checkpoint needs."""

from dataclasses import replace

import pytest
import torch

from labcore.catalog.choices import needs_teacher
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.llm.networks import (
    BROUGHT,
    CRITIC,
    NETWORKS,
    POLICY,
    PROCESS_REWARD_MODEL,
    REFERENCE,
    REWARD_MODEL,
    TEACHER,
    needed,
)
from tests.every import now
from tests.llm.tools import session, shake, spec, unlike, weights


@pytest.mark.parametrize("key", now(ALGORITHMS, *unlike(ALGORITHMS.values())))
def test_a_run_holds_the_networks_of_its_row(key):
    row, started = ALGORITHMS[key], session(key)
    built = tuple(name for name in started.models if name not in BROUGHT)
    assert tuple(needed(started.spec, started.knobs)) == built == row.models
    assert (TEACHER in started.models) == needs_teacher(started.knobs)
    learning = {name for name in row.models if NETWORKS[name].learning_rate}
    if {REWARD_MODEL, PROCESS_REWARD_MODEL} & learning:  # the policy then only lends its weights
        learning -= {"policy"}
    assert set(started.optimizers) == learning
    assert all(NETWORKS[name].learning_rate in started.knobs for name in learning)
    assert not any(model.training for model in started.models.values())


def test_the_reference_is_a_frozen_copy():
    started = session("grpo")
    reference = NETWORKS[REFERENCE].build(started.policy)
    before = weights(reference)
    assert torch.equal(before, weights(started.policy))
    assert not any(parameter.requires_grad for parameter in reference.parameters())
    shake(started.policy)
    assert torch.equal(weights(reference), before) and not torch.equal(weights(started.policy), before)


def test_the_critic_begins_at_the_policy_and_learns_by_itself():
    started = session("ppo")
    critic = NETWORKS[CRITIC].build(started.policy)
    assert torch.equal(weights(critic.trunk), weights(started.policy.base_model))
    shake(critic)
    assert not torch.equal(weights(critic.trunk), weights(started.policy.base_model))


def test_a_critic_is_there_exactly_where_values_are_asked_for():
    made = spec("ppo")
    assert needed(made, {**made.knobs, "advantage": "batch_mean"}) == [POLICY, REFERENCE]
    assert needed(made, made.knobs) == [POLICY, REFERENCE, CRITIC]


def test_a_frozen_network_is_saved_by_a_fork_alone():
    """Whoever was not forked has it again from its base; a fork's parent may be gone."""
    alone = spec("ppo")
    fork = replace(alone, parent=("parent", 3))
    learning = [CRITIC, REWARD_MODEL, PROCESS_REWARD_MODEL]
    assert [name for name in NETWORKS if NETWORKS[name].saved(alone)] == [POLICY, *learning]
    assert [name for name in NETWORKS if NETWORKS[name].saved(fork)] == [POLICY, REFERENCE, *learning]


def test_a_fork_keeps_what_both_have_and_builds_the_rest():
    parent = session("grpo")
    shake(parent.policy)
    policy, reference = parent.policy, parent.reference
    child = parent.fork(replace(spec("ppo"), parent=("parent", 0)))
    assert child.policy is policy and child.reference is reference and set(child.optimizers) == {POLICY, CRITIC}
    assert torch.equal(weights(child.critic.trunk), weights(policy.base_model))
    back = child.fork(replace(spec("raft"), parent=("parent", 0)))
    assert back.critic is None and set(back.optimizers) == {POLICY}
    late = session("sft")
    shake(late.policy)
    late = late.fork(replace(spec("grpo"), parent=("parent", 0)))
    assert torch.equal(weights(late.reference), weights(late.policy))  # the policy as it is at the fork
