"""Running moments of observations and rewards: golden numbers of VecNormalize."""

import numpy as np
import pytest
import torch

from labcore.classic.deep.evaluation import load
from labcore.classic.deep.rollout import collect
from labcore.classic.deep.standardise import RewardScale, Standardise


@pytest.fixture
def known(golden):
    return golden("sb3_gaussian")["normalise"]


def test_rewards_are_scaled_as_in_the_reference(known):
    rewards, ended = np.array(known["rewards"]), np.array(known["ended"])
    scale = RewardScale(np.zeros(3))
    first = scale.scaled(rewards[:4], ended[:4], known["gamma"])
    scale = RewardScale.of_state(scale.state())  # a checkpoint between two rollouts
    found = np.concatenate([first, scale.scaled(rewards[4:], ended[4:], known["gamma"])])
    np.testing.assert_allclose(found, known["scaled"], rtol=1e-6)


def test_the_moments_of_observations_are_those_of_the_reference(known):
    """Seen in one go or in two, they are the same; used only after `take`."""
    rows = torch.tensor(known["observations"]).reshape(-1, 2)
    standardise = Standardise(2)
    standardise.see(rows[:10])
    standardise.see(rows[10:])
    assert torch.equal(standardise(rows), rows)
    standardise.take()
    torch.testing.assert_close(standardise.mean, torch.tensor(known["mean"]), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(standardise.var, torch.tensor(known["var"]), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(standardise(rows[:3]), torch.tensor(known["next"]), rtol=1e-5, atol=1e-5)
    assert float(standardise(torch.full((2,), 1e9)).max()) == 10


def test_what_a_rollout_sees_is_used_from_the_next_one_on(start, tmp_path):
    """So the policy that acted is the one that is updated; all networks and the exported policy have the moments."""
    session = start("ppo", {"normalise_observations": True, "anneal": False, "learning_rate": 0.0})
    batch = collect(session, 8)
    first = session.policy(batch.observations)
    assert float(session.policy.standardise.shift.abs().max()) == 0
    collect(session, 8)
    assert not torch.allclose(session.policy(batch.observations), first)
    for network in session.networks.values():
        torch.testing.assert_close(network.standardise.shift, batch.observations.reshape(-1, 4).mean(0), atol=1e-3,
                                   rtol=1e-3)
    session.save(tmp_path)
    network, _ = load(tmp_path / "policy")
    assert torch.equal(network(batch.observations), session.policy(batch.observations))
