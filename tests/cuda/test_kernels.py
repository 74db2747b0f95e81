"""Each Triton kernel computes what torch does in float64. On a GPU, or where Triton is installed by its interpreter:
`TRITON_INTERPRET=1 python -m pytest tests/cuda/test_kernels.py`."""

from __future__ import annotations

import os

import pytest
import torch
from torch.nn import functional as F
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from labcore.maths import gpu

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a CUDA GPU: none is here", allow_module_level=True)
pytest.importorskip("triton", reason="Triton is not installed: it comes with torch's builds for CUDA")
HALF = torch.bfloat16 if DEVICE == "cuda" else torch.float16  # the interpreter has no matrix products in bfloat16
DTYPES = {"fp32": (torch.float32, 2e-6), "half": (HALF, 6e-3)}  # and how far off a result may be


@pytest.fixture(name="gpu", autouse=True)
def anywhere(monkeypatch):
    """In place of the folder's fixture, which skips where there is no GPU: there the kernels take tensors of the
    processor."""
    torch.manual_seed(0)
    if DEVICE == "cpu":
        monkeypatch.setattr(gpu, "kernels", lambda x: gpu._kernels())


def made(dtype, *shape):
    return torch.randn(*shape, device=DEVICE).to(dtype)


def off(found, expected):
    """‖found − expected‖ / ‖expected‖; NaN fails every comparison."""
    found, expected = found.detach().cpu().double(), expected.detach().cpu().double()
    return float((found - expected).norm() / expected.norm())


def exact(monkeypatch, run):
    """What torch's own lines in `gpu` give."""
    with monkeypatch.context() as patched:
        patched.setattr(gpu, "kernels", lambda x: None)
        return run()


def wide(*tensors):
    return [each.cpu().double() if each.is_floating_point() else each.cpu() for each in tensors]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocabulary", [11, 5000])
def test_log_probs_and_entropy_with_their_gradients(dtype, vocabulary):
    kind, most = DTYPES[dtype]
    logits, tokens = 3 * made(kind, 9, vocabulary), torch.randint(vocabulary, (9,), device=DEVICE)
    pulls = torch.randn(2, 9, device=DEVICE)
    given = logits.clone().requires_grad_()
    chosen, entropy = gpu.log_probs(given, tokens, 0.7)
    (chosen * pulls[0] + entropy * pulls[1]).sum().backward()
    truth = logits.double().requires_grad_()
    log_p = (truth / 0.7).log_softmax(-1)
    right = log_p.gather(-1, tokens[:, None])[:, 0], -(log_p.exp() * log_p).sum(-1)
    (right[0] * pulls[0] + right[1] * pulls[1]).sum().backward()
    assert off(chosen, right[0]) < 2e-6 and off(entropy, right[1]) < 2e-6 and off(given.grad, truth.grad) < most


def test_no_probability_is_no_nan():
    logits = torch.tensor([[0.0, -torch.inf, 1.0], [-torch.inf, 5.0, -torch.inf]], device=DEVICE, requires_grad=True)
    chosen, entropy = gpu.log_probs(logits, torch.tensor([2, 1], device=DEVICE), 1.0)
    (chosen + entropy).sum().backward()
    assert chosen.isfinite().all() and entropy[1] == 0 and logits.grad.isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_mlp_with_its_gradients(dtype):
    kind, most = DTYPES[dtype]
    given = [made(kind, 5, 32), *(made(kind, *shape) / 6 for shape in ((70, 32), (70, 32), (32, 70)))]
    found, truth = ([each.clone().requires_grad_() for each in part] for part in (given, [g.double() for g in given]))
    pull = torch.randn(5, 32, device=DEVICE)
    result = gpu.mlp(*found)
    (result * pull).sum().backward()
    y, gate, up, down = truth
    right = (F.silu(y @ gate.T) * (y @ up.T)) @ down.T
    (right * pull).sum().backward()
    assert off(result, right) < most
    assert all(off(mine.grad, theirs.grad) < 2 * most for mine, theirs in zip(found, truth, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("biased", [False, True])
def test_queries_keys_and_values_with_their_gradients(dtype, biased, monkeypatch):
    kind, most = DTYPES[dtype]
    y, weights = made(kind, 6, 32), [made(kind, heads * 16, 32) / 6 for heads in (3, 1, 1)]
    biases = [made(kind, len(each)) for each in weights] if biased else []
    angles = torch.randn(6, 8, device=DEVICE)
    found, truth = ([each.clone().requires_grad_() for each in part] for part in (
        [y, *weights, *biases], wide(y, *weights, *biases)))
    result = gpu.queries(found[0], angles.cos(), angles.sin(), 16, found[1:4], found[4:] or None)
    bias = truth[4:] or [None] * 3
    parts = [F.linear(truth[0], weight, each).unflatten(-1, (-1, 16))
             for weight, each in zip(truth[1:4], bias, strict=True)]
    right = exact(monkeypatch, lambda: [gpu.turn(part, *wide(angles.cos(), angles.sin())) for part in parts[:2]])
    pulls = [made(torch.float32, *part.shape) for part in result]
    sum((part * pull).sum() for part, pull in zip(result, pulls, strict=True)).backward()
    sum((part * pull.cpu()).sum() for part, pull in zip([*right, parts[2]], pulls, strict=True)).backward()
    assert all(off(mine, theirs) < most for mine, theirs in zip(result, [*right, parts[2]], strict=True))
    assert all(off(mine.grad, theirs.grad) < 2 * most for mine, theirs in zip(found, truth, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("added", [False, True])
def test_a_sum_and_its_norm(dtype, added):
    kind, most = DTYPES[dtype]
    norm = LlamaRMSNorm(40, 1e-5).to(DEVICE)
    norm.weight.data.normal_()
    x, delta = made(kind, 5, 40), made(kind, 5, 40) if added else None
    total, normed = gpu.add_norm(x, delta, norm)
    right = x.double() + (0 if delta is None else delta.double())
    scaled = right * (right.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * norm.weight.double()
    assert off(total, right) < most and off(normed, scaled) < most


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("prompts, group, heads, repeat, size, width, length, seen", [
    (2, 3, 2, 1, 16, 70, 40, 5), (2, 2, 1, 7, 32, 70, 70, 66), (1, 2, 2, 2, 8, 32, 32, 0),
    (2, 2, 1, 1, 64, 64, 32, 31)])
def test_attention_of_the_next_token(dtype, prompts, group, heads, repeat, size, width, length, seen, monkeypatch):
    kind, most = DTYPES[dtype]
    rows, angles = prompts * group, torch.randn(prompts * group, size // 2, device=DEVICE)
    q, k, v = (made(kind, rows, count, size) for count in (heads * repeat, heads, heads))
    prompt = tuple(made(kind, prompts, heads, width, size) for _ in range(2))
    own = tuple(made(kind, rows, heads, length, size) for _ in range(2))
    starts = torch.randint(width, (prompts,), device=DEVICE)
    ended, there = torch.zeros(rows, dtype=torch.bool, device=DEVICE), torch.tensor([seen], device=DEVICE)
    buffers = tuple(wide(*own))
    right = exact(monkeypatch, lambda: gpu.attend(
        *wide(q, k, v, angles.cos(), angles.sin()), tuple(wide(*prompt)), buffers, *wide(starts, ended, there), 0.3))

    def attended():
        return gpu.attend(q, k, v, angles.cos(), angles.sin(), prompt, own, starts, ended, there, 0.3)
    assert off(attended(), right) < most
    assert all(off(mine, theirs) < most for mine, theirs in zip(own, buffers, strict=True)), "what is stored"
    ended[0] = True
    assert off(attended()[1:], right[1:]) < most and torch.equal(attended()[0], v[0].repeat_interleave(repeat, 0))


@pytest.mark.parametrize("dtype", DTYPES)
def test_draws_have_the_probabilities_and_come_of_the_seed(dtype):
    kind, rows = DTYPES[dtype][0], 4000 if DEVICE == "cuda" else 400
    logits = made(kind, 1, 9).expand(rows, 9).contiguous()
    log_p = (logits[0].float() / 0.8).log_softmax(-1)

    def drawn(seed, greedy=False):
        ids, logprobs = torch.zeros(2, rows, dtype=torch.long, device=DEVICE), torch.zeros(2, rows, device=DEVICE)
        gpu.choose(logits, torch.tensor(0.8, device=DEVICE), torch.tensor([seed], device=DEVICE),
                   torch.tensor([1], device=DEVICE), ids, logprobs, greedy)
        assert not ids[0].any() and off(logprobs[1], log_p[ids[1]]) < 2e-6
        return ids[1]
    found, expected = torch.bincount(drawn(2**40 + 7), minlength=9), rows * log_p.exp()
    assert float(((found - expected) ** 2 / expected).sum()) < 26.1, "χ² of 8 degrees: 1 in 1,000 is above"
    assert torch.equal(drawn(5), drawn(5)) and not torch.equal(drawn(5), drawn(6))
    assert (drawn(5, greedy=True) == logits[0].argmax()).all()


def test_a_draw_from_more_tokens_than_a_program_looks_at():
    logits = 4 * made(torch.float32, 5, 9000)
    ids, logprobs = torch.zeros(1, 5, dtype=torch.long, device=DEVICE), torch.zeros(1, 5, device=DEVICE)
    one = torch.zeros(1, dtype=torch.long, device=DEVICE)
    gpu.choose(logits, torch.ones((), device=DEVICE), one, one, ids, logprobs, greedy=True)
    assert torch.equal(ids[0], logits.argmax(-1)) and off(logprobs[0], logits.log_softmax(-1).amax(-1)) < 2e-6
