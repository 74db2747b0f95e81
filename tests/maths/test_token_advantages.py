"""Whitened returns of tokens, as in REINFORCE++: by hand, beside a slow loop, and without what does not count."""

import pytest
import torch

from labcore.maths.token_advantages import reward_to_go_whitened


@pytest.fixture
def tokens(generator):
    """(token_rewards (6, 5), completion_mask), 0 where masked; one row has nothing that counts, one has a hole."""
    mask = torch.arange(5) < torch.tensor([5, 3, 1, 0, 4, 5])[:, None]
    mask[5, 2] = False
    return torch.where(mask, torch.randn(6, 5, generator=generator, dtype=torch.float64), 0), mask


def test_reward_to_go_whitened_by_hand(close):
    rewards = torch.tensor([[0.0, 1.0, 9.0], [4.0, 9.0, 9.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    # γ = 1: returns 1, 1, 4, of mean 2 and variance 3. γ = 0: 0, 1, 4, of mean 5/3 and variance 13/3.
    low, high, spread = -1 / (3 + 1e-8) ** 0.5, 2 / (3 + 1e-8) ** 0.5, (13 / 3 + 1e-8) ** 0.5
    close(reward_to_go_whitened(rewards, mask, 1.0), [[low, low, 0], [high, 0, 0]])
    close(reward_to_go_whitened(rewards, mask, 0.0),
          [[-5 / 3 / spread, -2 / 3 / spread, 0], [7 / 3 / spread, 0, 0]])


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_reward_to_go_whitened_loop_twin(close, tokens, gamma):
    rewards, mask = tokens
    found = {}
    for i in range(6):
        counted = [t for t in range(5) if mask[i, t]]  # γ counts the tokens of the completion, not the holes
        for n, t in enumerate(counted):
            found[i, t] = sum(gamma**k * float(rewards[i, s]) for k, s in enumerate(counted[n:]))
    mean = sum(found.values()) / len(found)
    variance = sum((number - mean) ** 2 for number in found.values()) / (len(found) - 1)
    expected = [[(found[i, t] - mean) / (variance + 1e-8) ** 0.5 if (i, t) in found else 0.0 for t in range(5)]
                for i in range(6)]
    close(reward_to_go_whitened(rewards, mask, gamma), expected)


def test_reward_to_go_whitened_is_whitened(close, tokens):
    rewards, mask = tokens
    estimate = reward_to_go_whitened(1e4 * rewards, mask, 0.9)
    close(estimate[mask].mean(), 0)
    close(estimate[mask].var(), 1)
    assert (estimate[~mask] == 0).all()
    # A better last token lifts its own row above what it was, and the others below.
    rewards = rewards.clone()
    rewards[4, 3] += 5
    lifted = reward_to_go_whitened(rewards, mask, 1.0) - reward_to_go_whitened(*tokens, 1.0)
    assert (lifted[4, :4] > 0).all() and lifted[mask].min() < 0


def test_reward_to_go_whitened_never_reads_what_does_not_count(tokens):
    rewards, mask = tokens
    poisoned = reward_to_go_whitened(torch.where(mask, rewards, torch.nan), mask, 0.9)
    assert torch.equal(poisoned, reward_to_go_whitened(rewards, mask, 0.9))


def test_reward_to_go_whitened_leaves_out_what_cannot_be_scored(close, tokens):
    """The reward stands at the last token, so NaN reaches every token of its completion, and no other."""
    rewards, mask = tokens
    unscored = rewards.clone()
    unscored[1, 2] = torch.nan
    without = mask.clone()
    without[1] = False
    close(reward_to_go_whitened(unscored, mask, 0.9),
          reward_to_go_whitened(rewards, without, 0.9))
    assert (reward_to_go_whitened(torch.full_like(rewards, torch.nan), mask, 0.9) == 0).all()


@pytest.mark.parametrize("constant", [8.1, 0.1, 1e6])
def test_equal_returns_give_exactly_0(constant):
    mask = torch.arange(7) < torch.tensor([7, 3, 5, 1, 6])[:, None]
    last = torch.arange(7) == mask.sum(1, keepdim=True) - 1
    rewards = torch.where(last, constant, 0.0)
    assert (reward_to_go_whitened(rewards, mask, 1.0) == 0).all()
