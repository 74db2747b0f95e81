import math

import pytest
import torch

from labcore.maths.logprobs import entropy, logprobs_and_entropy, selective_log_softmax


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
