"""The objective that the bench compares with: J − β KL at the β in force, wherever the run places its KL."""

import pytest
import torch

from labcore.llm.exact.problem import logprobs
from labcore.llm.exact.world import World
from tests.llm.exact.small import session


def by_hand(found, world, beta):
    """Σ_y π(y) (R(y) − β log π(y)/π_ref(y)), one completion at a time."""
    policy, reference = (logprobs(model, world.prompts, world.space).exp()[0].tolist()
                         for model in (found.policy, found.reference))
    rewards = world.rewards[0].tolist()
    logs = torch.tensor(policy).double().log() - torch.tensor(reference).double().log()
    return sum(p * (r - beta * log) for p, r, log in zip(policy, rewards, logs.tolist(), strict=True))


@pytest.mark.parametrize("placement, beta", [("loss", 2.0), ("reward", 2.0), ("off", 0.0)])
def test_the_price_of_the_kl_counts_wherever_it_is_paid_and_not_where_it_is_off(placement, beta):
    found = session("grpo", away=0.5, beta=2.0, kl_placement=placement)
    world = World.of(found)
    assert float(world.objective(found).detach()) == pytest.approx(by_hand(found, world, beta), rel=1e-5)
    assert by_hand(found, world, 2.0) < by_hand(found, world, 0.0) - 0.05


def test_the_price_is_the_one_that_a_controller_has_moved():
    found = session("grpo", away=0.5, beta=0.5, adaptive_kl_target=0.1)
    found.kl_factor, found.kl_beta = 3.0, 0.5
    world = World.of(found)
    assert float(world.objective(found).detach()) == pytest.approx(by_hand(found, world, 1.5), rel=1e-5)
