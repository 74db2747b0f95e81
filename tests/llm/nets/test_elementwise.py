"""The norm and the gate, and their gradients, equal torch's own."""

import pytest
import torch
from torch.nn import functional as F

from labcore.llm.nets.elementwise import rms_norm, swiglu

EPS = 0.3  # so large that a result without it differs


def normed(x, scale):
    return F.rms_norm(x, scale.shape, scale, EPS)


def gated(gate, up):
    return F.silu(gate) * up


def given(*shapes, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, dtype=dtype, generator=generator).requires_grad_() for shape in shapes]


CASES = [(lambda x, scale: rms_norm(x, scale, EPS), normed, (5, 7), (7,)), (swiglu, gated, (5, 7), (5, 7))]


@pytest.mark.parametrize("ours, torchs, first, second", CASES, ids=["rms", "swiglu"])
def test_values_and_gradients(ours, torchs, first, second):
    tensors, weights = given(first, second), torch.randn(5, 7, dtype=torch.float64)
    found, expected = ours(*tensors), torchs(*tensors)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    for mine, right in zip(torch.autograd.grad((found * weights).sum(), tensors),
                           torch.autograd.grad((expected * weights).sum(), tensors), strict=True):
        torch.testing.assert_close(mine, right, rtol=0, atol=1e-12)


@pytest.mark.parametrize("ours, torchs, first, second", CASES, ids=["rms", "swiglu"])
def test_without_gradients_the_inputs_stay_as_they_are(ours, torchs, first, second):
    tensors = [each.detach() for each in given(first, second)]
    before = [each.clone() for each in tensors]
    torch.testing.assert_close(ours(*tensors), torchs(*tensors), rtol=0, atol=1e-12)
    assert all(torch.equal(*pair) for pair in zip(tensors, before, strict=True))


@pytest.mark.parametrize("ours, torchs, first, second", CASES, ids=["rms", "swiglu"])
def test_half_precision_is_torchs(ours, torchs, first, second):
    tensors = given(first, second, dtype=torch.bfloat16)
    assert torch.equal(ours(*tensors), torchs(*tensors))


def test_a_frozen_scale_has_no_gradient():
    x, scale = given((5, 7), (7,))
    rms_norm(x, scale.detach(), EPS).sum().backward()
    assert x.grad is not None and scale.grad is None
