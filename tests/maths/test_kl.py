import pytest
import torch

from labcore.maths import kl
from labcore.maths.logprobs import selective_log_softmax
from labcore.maths.masked import masked_sum

# Two distributions over four tokens, by logits; a third one that sampled.
PI = torch.tensor([0.5, -0.3, 1.1, 0.0], dtype=torch.float64)
REF = torch.tensor([-0.2, 0.4, 0.6, 0.9], dtype=torch.float64)
OLD = torch.tensor([0.1, 0.1, 0.8, -0.4], dtype=torch.float64)
TOKENS = torch.arange(4)


def expectation_and_gradient(estimate, sampler):
    """Σ_y p(y) k(y) and its gradient by the logits of π, with p fixed: what a sampled loss has on average."""
    logits = PI.clone().requires_grad_()
    logprobs = selective_log_softmax(logits.expand(4, 4), TOKENS)
    value = (sampler.softmax(-1) * estimate(logprobs, REF.log_softmax(-1))).sum()
    return value.detach(), torch.autograd.grad(value, logits)[0]


def exact_kl_and_gradient(reverse=True):
    """KL(π ‖ π_ref), or KL(π_ref ‖ π), and its gradient by the logits of π."""
    logits = PI.clone().requires_grad_()
    log_p, log_q = logits.log_softmax(-1), REF.log_softmax(-1)
    value = (log_p.exp() * (log_p - log_q)).sum() if reverse else (log_q.exp() * (log_q - log_p)).sum()
    return value.detach(), torch.autograd.grad(value, logits)[0]


def on_policy_ratio_k3(logprobs, ref_logprobs):
    return kl.ratio_k3(logprobs, ref_logprobs, (logprobs - logprobs.detach()).exp())


def off_policy_ratio_k3(logprobs, ref_logprobs):
    return kl.ratio_k3(logprobs, ref_logprobs, (logprobs - OLD.log_softmax(-1)).exp())


def test_worked_example(golden, close):
    example = golden("worked_examples")["kl_two_distributions"]
    p, q = torch.tensor(example["p"], dtype=torch.float64), torch.tensor(example["q"], dtype=torch.float64)
    for name in ("k1", "k2", "k3"):
        close((p * getattr(kl, name)(p.log(), q.log())).sum(), example[f"E_p_{name}"])
    close((p * kl.k3(p.log(), q.log())).sum(), example["kl_pq"])
    close((q * kl.k3(q.log(), p.log())).sum(), example["kl_qp"])


def test_k3_is_not_the_one_with_the_ratio_upside_down(golden, close):
    example = golden("worked_examples")["kl_two_distributions"]
    p, q = torch.tensor(example["p"], dtype=torch.float64), torch.tensor(example["q"], dtype=torch.float64)
    upside_down = (p * kl.k3(q.log(), p.log())).sum()
    close(upside_down, example["E_p_wrong_k3_p_over_q"])
    with pytest.raises(AssertionError):
        close(upside_down, example["kl_pq"])


def test_by_hand(close):
    logprobs, ref_logprobs = torch.tensor([[0.5, 0.25], [0.25, 0.5]], dtype=torch.float64).log()
    log2 = torch.tensor(2.0, dtype=torch.float64).log()
    close(kl.k1(logprobs, ref_logprobs), torch.stack([log2, -log2]))
    close(kl.k2(logprobs, ref_logprobs), torch.stack([log2**2, log2**2]) / 2)
    close(kl.k3(logprobs, ref_logprobs), torch.stack([log2 - 0.5, 1 - log2]))
    close(kl.ratio_k3(logprobs, ref_logprobs, torch.tensor([2.0, 3.0], dtype=torch.float64)),
          torch.stack([2 * log2 - 1, 3 - 3 * log2]))


@pytest.mark.parametrize("estimate", [kl.k1, kl.k3, on_policy_ratio_k3])
def test_expectation_is_the_kl(close, estimate):
    close(expectation_and_gradient(estimate, PI)[0], exact_kl_and_gradient()[0])


@pytest.mark.parametrize("estimate", [kl.k2, on_policy_ratio_k3])
def test_gradient_is_that_of_the_reverse_kl(close, estimate):
    close(expectation_and_gradient(estimate, PI)[1], exact_kl_and_gradient()[1])


def test_ratio_k3_is_exact_off_policy_too(close):
    for actual, expected in zip(expectation_and_gradient(off_policy_ratio_k3, OLD), exact_kl_and_gradient(),
                                strict=True):
        close(actual, expected)


def test_k1_in_the_loss_has_no_gradient(close):
    close(expectation_and_gradient(kl.k1, PI)[1], torch.zeros(4))


def test_on_tokens_of_an_earlier_policy_k1_in_the_loss_drives_away_from_it(close):
    """E_old ∇k1 = −∇KL(π_old ‖ π): so it is from the second update on a batch, wherever the reference is."""
    logits = PI.clone().requires_grad_()
    log_p, log_old = logits.log_softmax(-1), OLD.log_softmax(-1)
    away = torch.autograd.grad((log_old.exp() * (log_old - log_p)).sum(), logits)[0]
    found = expectation_and_gradient(kl.k1, OLD)[1]
    close(found, -away)
    assert found.norm() > 0.1


def test_k3_in_the_loss_has_the_gradient_of_the_other_kl(close):
    close(expectation_and_gradient(kl.k3, PI)[1], exact_kl_and_gradient(reverse=False)[1])
    with pytest.raises(AssertionError):
        close(expectation_and_gradient(kl.k3, PI)[1], exact_kl_and_gradient()[1])


def test_k1_in_the_reward_has_the_gradient_of_the_reverse_kl(close):
    """E[k1 ∇log π], the score-function gradient of a reward −k1."""
    close(expectation_and_gradient(lambda logprobs, ref: kl.k1(logprobs, ref).detach() * logprobs, PI)[1],
          exact_kl_and_gradient()[1])


@pytest.mark.parametrize("estimate", [kl.k1, kl.k3])
def test_sum_over_a_sequence_is_the_kl_of_sequences(close, generator, policy, estimate):
    logits, tokens, completion_mask, prefixes = policy
    ref_logits = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    logprobs = selective_log_softmax(logits[prefixes], tokens)
    ref_logprobs = selective_log_softmax(ref_logits[prefixes], tokens)
    p = (logprobs * completion_mask).sum(1).exp()
    q = (ref_logprobs * completion_mask).sum(1).exp()
    close(p.sum(), 1)
    close((p * (estimate(logprobs, ref_logprobs) * completion_mask).sum(1)).sum(), (p * (p / q).log()).sum())


def test_k3_keeps_its_digits_near_the_reference():
    """At a difference of 1e-4 nats k3 is 5e-9: computed as e^x − 1 − x in float32 it would be rounding noise."""
    logprobs = torch.tensor([-1.0, -1.0])
    ref_logprobs = logprobs + torch.tensor([1e-4, -1e-4])
    exact = kl.k3(logprobs.double(), ref_logprobs.double())
    torch.testing.assert_close(kl.k3(logprobs, ref_logprobs).double(), exact, rtol=1e-2, atol=0.0)
    assert (kl.k3(logprobs, ref_logprobs) >= 0).all()


@pytest.mark.parametrize("estimate", [kl.k1, kl.k2, kl.k3, on_policy_ratio_k3])
def test_at_the_reference_it_is_0(estimate):
    assert (estimate(REF, REF) == 0).all()


def test_alike_where_nothing_counts_the_gradient_is_finite():
    """The module's rule: a reference of 0 beside an unlikely padding token would overflow into NaN."""
    mask, ref_logprobs = torch.tensor([True, False]), torch.tensor([-1.2, 0.0])
    for function, filled in ((kl.k3, True), (on_policy_ratio_k3, True), (kl.k3, False)):
        logprobs = torch.tensor([-1.0, -100.0], requires_grad=True)
        loss = masked_sum(function(logprobs.masked_fill(~mask, 0) if filled else logprobs, ref_logprobs), mask)
        assert torch.autograd.grad(loss, logprobs)[0].isfinite().all() == filled
