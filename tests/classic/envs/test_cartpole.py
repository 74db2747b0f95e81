import json

import numpy as np
import pytest
import torch

from labcore.classic.envs.cartpole import TorchCartPole, dynamics
from labcore.classic.envs.gym_env import CartPoleEnvironments
from labcore.classic.envs.gym_world import describe

LEAN = np.array([0.1, 0.3, 1.0, 0.5])


def test_equal_to_gymnasium_step_for_step():
    """Free-running in float64 for 1,010 steps of 16 environments, given Gymnasium's reset values and nothing else."""
    theirs = CartPoleEnvironments(describe("CartPole-v1"), 16, 7)
    ours = TorchCartPole(16, 0, dtype=torch.float64)
    ours.cart = torch.from_numpy(theirs._env.state.copy())
    rng, ends = np.random.default_rng(0), np.zeros(2, int)
    wild = np.arange(16) < 6  # some act at random and fall, the others balance until the time limit
    for _ in range(1010):
        assert np.array_equal(ours.observations.numpy(), theirs.observations)
        actions = np.where(wild, rng.integers(2, size=16), theirs.observations @ LEAN > 0).astype(np.int64)
        expected, found = theirs.step(actions), ours.step(torch.from_numpy(actions))
        for a, b in zip(expected, found, strict=True):
            assert np.array_equal(a, b.numpy())
        ended = expected.terminated | expected.truncated
        state = torch.from_numpy(theirs._env.state.copy())
        torch.testing.assert_close(ours.cart[:, ~ended], state[:, ~ended], rtol=1e-12, atol=1e-13)
        ours.cart[:, ended] = state[:, ended]
        ends += [expected.terminated.sum(), expected.truncated.sum()]
    assert ends[0] > 50 and ends[1] >= 20


def test_a_step_by_hand():
    """Upright and at rest, pushed to the right: ẍ and θ̈ from the equations, which the positions do not feel yet."""
    state = torch.zeros(4, 2, dtype=torch.float64)
    after = dynamics(state, torch.tensor([1, 0]))
    temp = 10 / 1.1
    angular = -temp / (0.5 * (4 / 3 - 0.1 / 1.1))
    linear = temp - 0.05 * angular / 1.1
    assert after[:, 0].tolist() == pytest.approx([0, 0.02 * linear, 0, 0.02 * angular])
    assert torch.equal(after[:, 1], -after[:, 0])


def test_resets_are_small_and_seeded():
    worlds = [TorchCartPole(1000, seed) for seed in (1, 1, 2)]
    for one in worlds:
        for _ in range(60):
            step = one.step(torch.ones(1000, dtype=torch.long))
    assert torch.equal(worlds[0].observations, worlds[1].observations)
    assert not torch.equal(worlds[0].observations, worlds[2].observations)
    ended = step.terminated
    assert ended.any() and (worlds[2].observations[ended].abs() <= 0.05).all()
    assert (step.next_observations[ended][:, 2].abs() > 12 * np.pi / 180).all()


def test_a_saved_state_continues_bit_for_bit():
    one, other = TorchCartPole(5, 1), TorchCartPole(5, 9)
    right = torch.ones(5, dtype=torch.long)
    for _ in range(15):
        one.step(right)
    other.load_state(json.loads(json.dumps(one.state())))
    for _ in range(20):
        assert torch.equal(one.step(right).next_observations, other.step(right).next_observations)
        assert torch.equal(one.observations, other.observations)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu():
    worlds = TorchCartPole(4096, 0, "cuda")
    step = worlds.step(torch.zeros(4096, dtype=torch.long, device="cuda"))
    assert step.rewards.device.type == "cuda" and step.rewards.sum() == 4096
