"""Advantages on one scale, by numbers worked by hand; TRL's own are in test_advantages.py."""

from math import sqrt

import torch

from labcore.maths import normalisation
from labcore.maths.advantages import group_mean

ADVANTAGES = torch.tensor([[1.0], [2.0], [3.0], [6.0], [9.0]], dtype=torch.float64)
SCORED = torch.tensor([[True]] * 4 + [[False]])


def test_over_completions_by_hand(close):
    """Mean 3 and variance 14/3 of the four that count; the fifth is 0."""
    expected = [[(value - 3) / (sqrt(14 / 3) + 1e-4)] for value in (1, 2, 3, 6)] + [[0]]
    close(normalisation.sequences(ADVANTAGES, SCORED), expected)


def test_over_tokens_by_hand(close):
    """Tokens 1, 3, 3, 3: mean 2.5, variance 1. A long completion weighs more."""
    mask = torch.tensor([[True, False, False], [True, True, True]])
    advantages = torch.tensor([[1.0], [3.0]], dtype=torch.float64)
    close(normalisation.tokens(advantages, mask), [[-1.5 / sqrt(1 + 1e-8), 0, 0], [0.5 / sqrt(1 + 1e-8)] * 3])


def test_equal_advantages_are_0(generator):
    """As a moving average leaves them where all rewards are equal: what rounding leaves is no signal."""
    advantages, every = torch.full((256, 1), 8.1), torch.ones(256, 1, dtype=torch.bool)
    assert not normalisation.sequences(advantages, every).any()
    assert not normalisation.tokens(advantages, every.expand(256, 3)).any()


def test_none_is_none():
    assert normalisation.none(ADVANTAGES) is ADVANTAGES


def test_equal_lengths_make_the_two_nearly_the_same(generator):
    """REINFORCE++-baseline as ms-swift has it, and as verl has it."""
    advantages = group_mean(torch.randn(8, 4, generator=generator, dtype=torch.float64)).view(-1, 1)
    every = torch.ones(32, 500, dtype=torch.bool)
    by_token = normalisation.tokens(advantages, every)[:, :1]
    ratio = by_token / normalisation.sequences(advantages, every[:, :1])
    torch.testing.assert_close(ratio, torch.full_like(ratio, sqrt(32 / 31)), rtol=1e-3, atol=0)
