"""What the policy's term of a token is multiplied with, by hand; TRL's losses with them are in the golden tests."""

from math import log

import torch

from labcore.maths import weights

MASK = torch.tensor([[True, True, True, True], [True, True, False, False]])
ENTROPY = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 9.0, 9.0]], dtype=torch.float64)


def test_the_tokens_of_highest_entropy_by_hand(close):
    """Six count: the quantile 0.6 of 0.1 … 0.6 is 0.4."""
    floor = weights.entropy_floor(ENTROPY, MASK, 0.4)
    close(floor, 0.4, torch.float32)
    kept = weights.high_entropy(ENTROPY, floor - 1e-6)
    assert (kept * MASK).tolist() == [[0, 0, 0, 1], [1, 1, 0, 0]] and kept.dtype == torch.float64
    assert weights.entropy_floor(ENTROPY, MASK, 1.0) == ENTROPY.float()[0, 0]


def test_a_token_whose_entropy_is_just_the_floor_counts():
    """Of ¼, ½, ¾, 1, 1¼ the median is ¾: three of five count. Where all are equally unsure, all of them count."""
    entropy = torch.tensor([[0.25, 0.5, 0.75, 1.0, 1.25]])
    floor = weights.entropy_floor(entropy, torch.ones(1, 5) > 0, 0.5)
    assert weights.high_entropy(entropy, floor).tolist() == [[0, 0, 1, 1, 1]]
    alike = torch.full((2, 4), 0.5)
    assert weights.high_entropy(alike, weights.entropy_floor(alike, MASK, 0.2)).all()


def test_bad_completions_far_from_the_policy_are_left_out():
    old = torch.zeros(4, 4, dtype=torch.float64)
    logprobs = torch.tensor([[-0.4, -0.2, 7, 7], [-0.4, -0.2, 7, 7], [-0.2, -0.2, 7, 7], [0.9, 0.9, 7, 7]],
                            dtype=torch.float64)
    mask = torch.tensor([[True, True, False, False]] * 4)
    advantages = torch.tensor([[1.0], [-1.0], [-1.0], [-1.0]], dtype=torch.float64).expand(4, 4)
    kept = weights.near_policy(logprobs, old, None, advantages, mask, off_policy_threshold=0.25)
    assert kept[:, 0].tolist() == [1, 0, 1, 1]  # good; 0.3 away; 0.2 away; likelier than before
    assert weights.near_policy(logprobs, old, None, advantages, mask, 0.35).all()
    # The trainer's own log-probs are near; the sampler's, where they are apart, are what sampled.
    assert torch.equal(weights.near_policy(logprobs, logprobs, old, advantages, mask, 0.25), kept)


def test_an_advantage_of_0_and_a_distance_of_just_the_threshold_are_kept():
    """w = 0 where A < 0 and the distance is above δ: each of both alone is enough."""
    old, mask = torch.zeros(3, 2), torch.ones(3, 2) > 0
    logprobs = torch.tensor([[-0.5, -0.5], [-0.25, -0.25], [-0.5, -0.25]])
    advantages = torch.tensor([[0.0], [-1.0], [-1.0]]).expand(3, 2)
    assert weights.near_policy(logprobs, old, None, advantages, mask, 0.25)[:, 0].tolist() == [1, 1, 0]


def test_a_ratio_to_the_sampler_is_truncated(close):
    old = torch.tensor([[log(0.5), log(0.2), log(0.9), 3.0]], dtype=torch.float64)
    sampler = torch.tensor([[log(0.25), log(0.4), log(0.1), -3.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, True, False]])
    close(weights.sampler_correction(old, sampler, mask, 5.0), [[2, 0.5, 5, 1]])
    assert weights.sampler_correction(old, old, mask, 5.0).eq(1).all()


def test_tokens_outside_the_bounds_and_the_effective_sample_size_by_hand(close):
    """Ratios 2, 0.25 and 3 of tokens, 1.5 of the completion; the fourth token does not count."""
    old = torch.tensor([[log(0.5), log(0.1), log(0.9), 3.0]], dtype=torch.float64)
    sampler = torch.tensor([[log(0.25), log(0.4), log(0.3), -3.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, True, False]])
    assert weights.outside_bounds(old, sampler, mask, 2.5, 0.5).tolist() == [[False, True, True, False]]
    assert not weights.outside_bounds(old, sampler, mask, 2.5, 0.5, "sequence_mask").any()
    assert weights.outside_bounds(old, sampler, mask, 1.25, 0.5, "sequence_truncate").all()
    close(weights.effective_share(old - sampler, mask), 5.25**2 / (3 * (4 + 0.0625 + 9)))
    close(weights.effective_share(torch.zeros(1, 4), mask), 1.0)
    close(weights.effective_share(torch.tensor([[0.0, 900.0, 0.0, 0.0]]), mask), 1 / 3)  # one has all the weight
