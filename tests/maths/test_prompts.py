"""Weights of prompts by hand: pass rates 0, 0.2, 0.5, 0.8, 1 and one that is not known."""

from math import nan

import pytest
import torch

from labcore.maths import prompts

RATES = torch.tensor([0.0, 0.2, 0.5, 0.8, 1.0, nan], dtype=torch.float64)


def test_the_band_holds_its_bounds_and_what_is_not_known():
    assert prompts.band(RATES, 0.2, 0.8).tolist() == [0, 1, 1, 1, 0, 1]
    assert prompts.band(RATES, 0.9, 1.0).tolist() == [0, 0, 0, 0, 1, 1]
    assert prompts.uniform(RATES).tolist() == [1] * 6


def test_learnable_prompts_weigh_by_the_variance_of_their_rewards():
    torch.testing.assert_close(prompts.learnable(RATES), torch.tensor([0, 0.16, 0.25, 0.16, 0, 0.25]).double())


@pytest.mark.parametrize("progress, kept", [
    (0.0, [0, 0, 0, 0, 1, 1]), (1 / 3, [0, 0, 0, 1, 1, 1]), (1.0, [1] * 6), (7.0, [1] * 6)])
def test_a_curriculum_by_pass_rate_begins_with_a_quarter(progress, kept):
    """Of 6 prompts ⌈1.5⌉ = 2, then ⌈3⌉, then all: the unknown one and the easiest first."""
    assert prompts.easy_first(RATES, progress).tolist() == kept
    assert prompts.easy_first(torch.full((4,), 0.5), 0.0).tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("progress, kept", [(0.0, [1, 1, 0, 0]), (0.5, [1, 1, 1, 0]), (1.0, [1] * 4), (2.0, [1] * 4)])
def test_a_curriculum_by_level_goes_from_the_lowest_to_the_highest(progress, kept):
    assert prompts.by_level(torch.tensor([2.0, 2.0, 4.0, 6.0]), progress).tolist() == kept


def test_the_newest_group_counts_half():
    assert prompts.newer_rate(None, 0.25) == 0.25 and prompts.newer_rate(0.25, 0.75) == 0.5
