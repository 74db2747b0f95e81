"""GRPO with process supervision: numbers by hand, a slow loop, and the limit of one step a completion."""

import statistics

import pytest
import torch
from torch import tensor

from labcore.maths.advantages import group_standardised
from labcore.maths.token_advantages import steps_standardised


def test_a_token_earns_the_normalised_rewards_of_this_and_later_steps():
    """Two completions of 3 and 2 tokens; steps end at tokens 1 and 2 of the first and at token 1 of the second."""
    rewards = tensor([[0.0, 1.0, 3.0], [0.0, 2.0, 9.0]], dtype=torch.float64)
    mask = tensor([[True, True, True], [True, True, False]])
    ends = tensor([[False, True, True], [False, True, True]])
    mean, std = 2.0, statistics.stdev([1.0, 3.0, 2.0])
    first, second, other = ((reward - mean) / (std + 1e-4) for reward in (1.0, 3.0, 2.0))
    expected = tensor([[first + second, first + second, second], [other, other, 0]], dtype=torch.float64)
    torch.testing.assert_close(steps_standardised(rewards, mask, ends, 2), expected)


def by_loop(rewards, mask, ends, size):
    found = torch.zeros_like(rewards)
    for start in range(0, len(rewards), size):
        steps = []
        for row in range(start, start + size):
            earned = 0.0
            for t in range(rewards.shape[1]):
                if mask[row, t]:
                    earned += float(rewards[row, t])
                    if ends[row, t]:
                        steps.append((row, t, earned))
                        earned = 0.0
        values = [value for *_, value in steps]
        for row, t, value in steps:
            scaled = (value - statistics.fmean(values)) / (statistics.stdev(values) + 1e-4)
            found[row, :t + 1] += scaled
    return found * mask


def test_it_is_the_slow_loop():
    generator = torch.Generator().manual_seed(3)
    rewards = torch.randn(6, 7, generator=generator, dtype=torch.float64)
    mask = torch.arange(7) < torch.randint(2, 8, (6, 1), generator=generator)
    ends = (torch.rand(6, 7, generator=generator) < 0.4) | (torch.arange(7) == mask.sum(1, keepdim=True) - 1)
    torch.testing.assert_close(steps_standardised(rewards, mask, ends, 3), by_loop(rewards, mask, ends & mask, 3))


def test_with_one_step_a_completion_it_is_grpo_s_advantage():
    totals = tensor([[1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0], [0.5, float("nan"), 1.0, 0.0]], dtype=torch.float64)
    rewards = torch.zeros(12, 3, dtype=torch.float64)
    rewards[:, 2] = totals.flatten()
    mask = torch.ones(12, 3, dtype=torch.bool)
    ends = (torch.arange(3) == 2).expand(12, 3)
    expected = group_standardised(totals).nan_to_num().view(12, 1).expand(12, 3)
    torch.testing.assert_close(steps_standardised(rewards, mask, ends, 4), expected)


def test_equal_steps_have_no_advantage():
    ends = torch.ones(2, 5, dtype=torch.bool)
    rewards = torch.full((2, 5), 0.1)
    assert steps_standardised(rewards, ends, ends, 2).abs().max() == 0
    assert steps_standardised(rewards.index_fill(1, tensor(0), 0.3), ends, ends, 2)[0, 0].item() == pytest.approx(
        0, abs=1e-5), "over all steps of a completion that has the group's mean"
