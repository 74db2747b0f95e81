import math

import pytest
import torch

from labcore.maths import ratios
from labcore.maths.kl import ratio_k3
from labcore.maths.logprobs import selective_log_softmax
from labcore.maths.masked import masked_sum
from labcore.maths.surrogates import score_function

MASK = torch.tensor([[True, True, False]])
LOGPROBS = torch.tensor([[-1.0, -2.0, -3.0]], dtype=torch.float64)
OLD = torch.tensor([[-1.5, -2.2, -9.0]], dtype=torch.float64)


def test_by_hand(close):
    close(ratios.none(LOGPROBS), [[1, 1, 1]])
    close(ratios.token(LOGPROBS, OLD, MASK), [[math.exp(0.5), math.exp(0.2), 1]])
    close(ratios.sequence_sum(LOGPROBS, OLD, MASK), [[math.exp(0.7)] * 3])
    close(ratios.sequence_mean(LOGPROBS, OLD, MASK), [[math.exp(0.35)] * 3])


def test_gradients_by_hand(close):
    for function, expected in ((ratios.token, [math.exp(0.5), math.exp(0.2), 0]),
                               (ratios.sequence_sum, [math.exp(0.7), math.exp(0.7), 0]),
                               (ratios.sequence_mean, [math.exp(0.35) / 2, math.exp(0.35) / 2, 0])):
        logprobs = LOGPROBS.clone().requires_grad_()
        ratio = function(logprobs, OLD, MASK)
        loss = ratio.sum() if function is ratios.token else ratio[0, 0]
        close(torch.autograd.grad(loss, logprobs)[0], [expected])


def test_without_an_old_policy_it_is_1_with_the_gradient_of_the_log_probability(close):
    """So a KL weighted by it has the gradient of KL(π ‖ π_ref), and the score function that of log π alone."""
    logits = torch.tensor([0.3, -0.4, 1.1], dtype=torch.float64).requires_grad_()
    ref = torch.tensor([0.2, 0.5, -0.7], dtype=torch.float64).log_softmax(0)
    logprobs = logits.log_softmax(0)
    exact = torch.autograd.grad((logprobs.exp() * (logprobs - ref)).sum(), logits, retain_graph=True)[0]
    ratio = ratios.none(logprobs)
    assert torch.equal(ratio.detach(), torch.ones(3, dtype=torch.float64))
    expected = (logprobs.exp().detach() * ratio_k3(logprobs, ref, ratio)).sum()  # over tokens sampled from π
    close(torch.autograd.grad(expected, logits)[0], exact)
    close(score_function(LOGPROBS, OLD), OLD * LOGPROBS)


@pytest.mark.parametrize("function", [ratios.token, ratios.sequence_sum, ratios.sequence_mean])
def test_on_policy_it_is_1_and_its_gradient_that_of_the_log_probability(close, batch, function):
    logprobs, mask = batch["logprobs"].requires_grad_(), batch["completion_mask"]
    ratio = function(logprobs, logprobs.detach(), mask)
    assert (ratio == 1).all()
    gradient = torch.autograd.grad(masked_sum(ratio, mask), logprobs)[0]
    lengths = mask.sum(1, keepdim=True)
    close(gradient, torch.where(mask, lengths if function is ratios.sequence_sum else 1, 0))


@pytest.mark.parametrize("function", [ratios.token, ratios.sequence_sum, ratios.sequence_mean])
def test_what_does_not_count_cannot_overflow(function, batch):
    """e^1000 is infinite, and 0 · ∞ in the backward pass would be NaN."""
    mask = batch["completion_mask"]
    logprobs = batch["logprobs"].requires_grad_()
    ratio = function(logprobs, torch.where(mask, batch["old_logprobs"], -1000.0), mask)
    assert ratio.isfinite().all()
    gradient = torch.autograd.grad(masked_sum(ratio, mask), logprobs)[0]
    assert gradient.isfinite().all() and (gradient[~mask] == 0).all()


@pytest.mark.parametrize("length", [3, 1])
def test_of_equal_token_ratios(close, length):
    mask = torch.arange(3)[None] < length
    logprobs = OLD + 0.1
    close(ratios.sequence_mean(logprobs, OLD, mask), [[math.exp(0.1)] * 3])
    close(ratios.sequence_sum(logprobs, OLD, mask), [[math.exp(0.1 * length)] * 3])


def test_sequence_sum_is_the_importance_weight(close, generator, policy):
    """E_old[ρ R] = E_π[R], and E_old[ρ] = 1, over all sequences."""
    logits, tokens, mask, prefixes = policy
    old_logits = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    logprobs, old_logprobs = (selective_log_softmax(z[prefixes], tokens) for z in (logits, old_logits))
    p, p_old = (masked_sum(each, mask, dim=1).exp() for each in (logprobs, old_logprobs))
    ratio = ratios.sequence_sum(logprobs, old_logprobs, mask)[:, 0]
    rewards = torch.randn(7, generator=generator, dtype=torch.float64)
    close((p_old * ratio * rewards).sum(), (p * rewards).sum())
    close((p_old * ratio).sum(), 1)


@pytest.mark.parametrize("function", [ratios.token, ratios.sequence_sum, ratios.sequence_mean])
def test_a_row_without_a_counted_token_has_ratio_1_and_no_gradient(function):
    logprobs = LOGPROBS.clone().requires_grad_()
    ratio = function(logprobs, OLD, torch.zeros_like(MASK))
    assert (ratio == 1).all()
    assert (torch.autograd.grad(ratio.sum(), logprobs)[0] == 0).all()


def test_gspo_token_has_the_value_and_with_one_advantage_the_gradient_of_gspo(batch):
    """The mean over a completion's tokens of ρ_t has the gradient of s; that of one token is its own alone."""
    old, mask, found = batch["old_logprobs"], batch["completion_mask"], []
    for function in (ratios.sequence_mean, ratios.sequence_mean_token):
        logprobs = batch["logprobs"].detach().clone().requires_grad_()
        ratio = function(logprobs, old, mask)
        mean = ((ratio * mask).sum(1) / mask.sum(1)).sum()
        found.append((ratio.detach(), torch.autograd.grad(mean, logprobs, retain_graph=True)[0],
                      torch.autograd.grad(ratio[0, 0], logprobs)[0]))
    (value, gradient, spread), (own_value, own_gradient, alone) = found
    torch.testing.assert_close(own_value, value)
    torch.testing.assert_close(own_gradient, gradient)
    assert spread[0].count_nonzero() == mask[0].sum() and alone.nonzero().tolist() == [[0, 0]]
