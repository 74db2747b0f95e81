"""Each Triton kernel computes what torch does in float64. On a GPU, or where Triton is installed by its interpreter:
`TRITON_INTERPRET=1 python -m pytest tests/cuda/test_kernels.py`."""

import os

import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from labcore.maths import gpu
from tests.maths.gpu_twins import Twins, attend_apart

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
@pytest.mark.parametrize("first, biased", [(False, False), (False, True), (True, True)])
def test_the_two_parts_of_a_layer_with_their_gradients(dtype, first, biased, monkeypatch):
    """Residual, norm, attention or MLP, as by torch in float64."""
    kind, most = DTYPES[dtype]
    bounds, angles = torch.tensor([0, 4, 5, 11], dtype=torch.int32, device=DEVICE), torch.randn(11, 8, device=DEVICE)
    rows = gpu.Rows(bounds, 6, angles.cos(), angles.sin())
    shapes = [(11, 32), (11, 32), (32,), (48, 32), (16, 32), (16, 32), (32, 48), *[(48,), (16,), (16,)] * biased]
    norm, shapes_of_mlp = made(kind, 32), [(70, 32), (70, 32), (32, 70)]
    given = [made(kind, *shape) / (6 if len(shape) == 2 and shape[0] != 11 else 1) for shape in shapes]
    of_mlp = [norm, *(made(kind, *shape) / 6 for shape in shapes_of_mlp)]
    pulls = torch.randn(2, 11, 32, device=DEVICE)
    attend_apart(monkeypatch) if DEVICE == "cpu" or kind is not HALF else None

    def run(tensors, rows):
        x, delta, norm, q, k, v, out, *biases = tensors[:len(shapes)]
        x, delta = gpu.attention(x, None if first else delta, (norm, 1e-5), [q, k, v, out], biases, rows, 0.25)
        norm, *weights = tensors[len(shapes):]
        both = gpu.mlp(x, delta, (norm, 1e-5), weights)
        sum((part * pull.to(part.device)).sum() for part, pull in zip(both, pulls, strict=True)).backward()
        return both
    found, truth = ([each.clone().requires_grad_() for each in part] for part in (
        [*given, *of_mlp], wide(*given, *of_mlp)))
    result = run(found, rows)
    with monkeypatch.context() as patched:
        attend_apart(patched)
        patched.setattr(gpu, "kernels", lambda x: Twins)
        right = run(truth, gpu.Rows(bounds.cpu(), 6, *wide(rows.cos, rows.sin)))
    assert all(off(mine, theirs) < 2 * most for mine, theirs in zip(result, right, strict=True))
    for mine, theirs in zip(found, truth, strict=True):
        assert (mine.grad is None) == (theirs.grad is None)
        assert mine.grad is None or off(mine.grad, theirs.grad) < 4 * most


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
