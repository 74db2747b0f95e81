import math

import pytest
import torch

from labcore.maths import logprobs as module
from labcore.maths.logprobs import WIDE, entropy, logprobs_and_entropy, selective_log_softmax


def test_by_hand(close):
    logits = torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64).log()  # π = (2/3, 1/3, 0)
    close(selective_log_softmax(logits, torch.tensor(1)), math.log(1 / 3))
    close(entropy(logits), math.log(3) - 2 / 3 * math.log(2))
    # At τ = ½ probabilities are squared: (4/5, 1/5, 0).
    close(selective_log_softmax(logits, torch.tensor(0), temperature=0.5), math.log(4 / 5))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_loop_twin(close, generator, temperature):
    logits = torch.randn(2, 3, 5, generator=generator, dtype=torch.float64)
    index = torch.randint(5, (2, 3), generator=generator)
    logprobs, entropies = logprobs_and_entropy(logits, index, temperature)
    for b in range(2):
        for t in range(3):
            weights = [math.exp(z / temperature) for z in logits[b, t].tolist()]
            p = [weight / sum(weights) for weight in weights]
            close(logprobs[b, t], math.log(p[index[b, t]]))
            close(entropies[b, t], -sum(q * math.log(q) for q in p))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_matches_trl(golden, close, dtype):
    reference = golden("trl_utils")
    logits, index = torch.tensor(reference["logits"], dtype=dtype), torch.tensor(reference["index"])
    close(selective_log_softmax(logits, index), reference["selective_log_softmax"])
    close(selective_log_softmax(logits, index, 0.7), reference["selective_log_softmax_T0.7"])
    close(entropy(logits), reference["entropy_from_logits"])
    logprobs, entropies = logprobs_and_entropy(logits, index, 0.7)
    close(logprobs, reference["logps_entropy_T0.7"]["logps"])
    close(entropies, reference["logps_entropy_T0.7"]["entropy"])
    index_topk = torch.tensor(reference["index_topk"])
    repeated = logits.unsqueeze(-2).expand(*index_topk.shape, logits.shape[-1])
    close(selective_log_softmax(repeated, index_topk), reference["selective_log_softmax_topk"])


def test_matches_trl_in_float32(golden, close):
    reference = golden("trl_utils")
    logits, index = torch.tensor(reference["logits"], dtype=torch.float32), torch.tensor(reference["index"])
    close(selective_log_softmax(logits, index), reference["selective_log_softmax_f32"])


def test_bfloat16_logits_are_computed_in_float32(golden, close):
    reference = golden("trl_utils")
    logits, index = torch.tensor(reference["logits"], dtype=torch.bfloat16), torch.tensor(reference["index"])
    logprobs = selective_log_softmax(logits, index, 0.7)
    assert logprobs.dtype == entropy(logits).dtype == torch.float32
    close(logprobs, selective_log_softmax(logits.double(), index, 0.7))
    # TRL stays in bfloat16, 8 bits: the same numbers to 1 in 128.
    expected = torch.tensor(reference["selective_log_softmax_bf16_logits"])
    torch.testing.assert_close(selective_log_softmax(logits, index), expected, rtol=1 / 128, atol=1 / 128)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_fused_is_bit_for_bit_the_two(generator, temperature):
    logits, index = torch.randn(4, 3, 11, generator=generator), torch.randint(11, (4, 3), generator=generator)
    for entropy_grad in (True, False):
        logprobs, entropies = logprobs_and_entropy(logits, index, temperature, entropy_grad)
        assert torch.equal(logprobs, selective_log_softmax(logits, index, temperature))
        assert torch.equal(entropies, entropy(logits, temperature))


def test_gradients(close, generator):
    """∇_z log π(y) = (1_y − π)/τ and ∇_z H = −π (log π + H)/τ."""
    logits = torch.randn(5, generator=generator, dtype=torch.float64, requires_grad=True)
    temperature, index = 0.7, torch.tensor(2)
    logprob, h = logprobs_and_entropy(logits, index, temperature)
    p = (logits / temperature).softmax(-1).detach()
    one_hot = torch.eye(5, dtype=torch.float64)[2]
    close(torch.autograd.grad(logprob, logits, retain_graph=True)[0], (one_hot - p) / temperature)
    close(torch.autograd.grad(h, logits)[0], -p * (p.log() + h.detach()) / temperature)
    assert not logprobs_and_entropy(logits, index, temperature, entropy_grad=False)[1].requires_grad


def test_limits(close):
    uniform, certain = torch.zeros(7), torch.tensor([200.0, 0.0, -torch.inf])
    close(entropy(uniform), math.log(7))
    certain.requires_grad_()
    logprob, h = logprobs_and_entropy(certain, torch.tensor(0))
    close(logprob, 0), close(h, 0)
    (logprob + h).backward()
    assert certain.grad.isfinite().all()


def test_large_logits_do_not_overflow(close):
    close(selective_log_softmax(torch.tensor([1e4, 1e4]), torch.tensor(0)), math.log(0.5))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_large_vocabulary_gives_the_same_numbers_a_few_rows_at_a_time(monkeypatch, generator, temperature, dtype):
    monkeypatch.setattr(module, "AT_ONCE", 3 * WIDE)  # rows 3, 3, 2
    logits = 3 * torch.randn(4, 2, WIDE, generator=generator)
    logits[0, 0, 5:] = -torch.inf
    logits, index = logits.to(dtype), torch.randint(5, (4, 2), generator=generator)
    pull = torch.randn(4, 2, generator=generator)

    def measured():
        given = logits.clone().requires_grad_()
        chosen, entropies = logprobs_and_entropy(given, index, temperature, entropy_grad=False)
        assert not entropies.requires_grad
        (chosen * pull).sum().backward()
        return chosen, entropies, selective_log_softmax(logits, index, temperature), given.grad

    *fast, gradient = measured()
    monkeypatch.setattr(module, "WIDE", WIDE + 1)
    *plain, expected = measured()
    assert all(map(torch.equal, fast, plain))
    torch.testing.assert_close(gradient, expected, rtol=1e-6 if dtype == torch.float32 else 1e-2, atol=1e-7)


def test_the_table_of_a_large_vocabulary_becomes_the_gradient(generator):
    """It is allocated once, and a second backward pass, which would find the gradient in it, is refused."""
    logits = torch.randn(2, WIDE, generator=generator, requires_grad=True)
    chosen, entropies = logprobs_and_entropy(logits, torch.tensor([1, 2]), entropy_grad=False)
    table = chosen.grad_fn.next_functions[0][0].saved_tensors[0].data_ptr()
    assert torch.autograd.grad(chosen.sum(), logits, retain_graph=True)[0].data_ptr() == table
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(chosen.sum(), logits)
    chosen, entropies = logprobs_and_entropy(logits, torch.tensor([1, 2]))  # an entropy bonus
    torch.autograd.grad((chosen + entropies).sum(), logits)


@pytest.mark.parametrize("vocabulary", [4, WIDE])
def test_no_rows_have_no_log_probs(vocabulary):
    logits, index = torch.empty(2, 0, vocabulary, requires_grad=True), torch.empty(2, 0, dtype=torch.long)
    for found in (selective_log_softmax(logits.detach(), index),
                  *logprobs_and_entropy(logits, index, entropy_grad=False)):
        assert found.shape == (2, 0)
    logprobs_and_entropy(logits, index, entropy_grad=False)[0].sum().backward()
    assert logits.grad is not None and logits.grad.shape == logits.shape
