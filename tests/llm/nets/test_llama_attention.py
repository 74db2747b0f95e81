"""Every form of attention is one and the same: outputs and gradients, whether or not the keys fill a vector."""

import pytest
import torch
from torch.nn import functional as F

from labcore.llm.nets import llama
from labcore.llm.nets.llama import attend_next, attend_rows
from labcore.llm.nets.packed import bias

HEADS = [(4, 4), (4, 2), (4, 1)]  # of queries, of keys
HEADS_IDS = ["a key head a head", "two heads a key head", "one key head"]


def parts(tokens: int, heads: int, key_heads: int, dtype=torch.float64):
    """q, k, v of 3 rows whose tokens see their past, the second row's first two tokens being padding."""
    generator = torch.Generator().manual_seed(tokens)
    q, k, v = (torch.randn(3, tokens, count, 6, dtype=dtype, generator=generator).transpose(1, 2).requires_grad_()
               for count in (heads, key_heads, key_heads))
    there = torch.ones(3, tokens, dtype=torch.bool)
    there[1, :2] = False
    return q, k, v, there, bias(there[:, None, None] & torch.ones(tokens, tokens).bool().tril(), dtype)


def output_and_gradients(attend, q, k, v, mask, there):
    """The output at every token, and the gradients of a random weighing of it."""
    seen = attend(q, k, v, mask).masked_fill(~there[:, None, :, None], 0)
    weights = torch.randn(seen.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return seen, *torch.autograd.grad((seen * weights).sum(), (q, k, v))


def fused(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


@pytest.mark.parametrize("heads, key_heads", HEADS, ids=HEADS_IDS)
@pytest.mark.parametrize("tokens", [3, 15, 16, 17, 63])
@pytest.mark.parametrize("attend", [attend_rows, llama._products])
def test_rows(attend, tokens, heads, key_heads):
    q, k, v, there, mask = parts(tokens, heads, key_heads)
    expected = output_and_gradients(fused, q, k, v, mask, there)
    for ours, theirs in zip(output_and_gradients(attend, q, k, v, mask, there), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_rows_reach_the_kernel_with_keys_that_fill_its_vectors(monkeypatch):
    seen, kernel = [], F.scaled_dot_product_attention

    def watched(q, k, v, attn_mask, **given):
        seen.append((q.shape[2], k.shape[2], v.shape[2], attn_mask.shape[3]))
        return kernel(q, k, v, attn_mask, **given)
    monkeypatch.setattr(F, "scaled_dot_product_attention", watched)
    for tokens in (3, 16, 17, 63):
        q, k, v, _, mask = parts(tokens, 4, 4, torch.float32)
        attend_rows(q, k, v, mask)
    assert seen == [(3, 16, 16, 16), (16, 16, 16, 16), (17, 32, 32, 32), (63, 64, 64, 64)]


@pytest.mark.parametrize("heads, key_heads", HEADS, ids=HEADS_IDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_another_device_the_kernel_gets_the_keys_of_every_head_and_no_products_are_made(heads, key_heads, dtype,
                                                                                           monkeypatch):
    """What is slow in bf16 is the kernel of the processor."""
    seen = []

    def watched(q, k, v, attn_mask):
        seen.append((q.shape[1], k.shape[1:3], v.shape[1:3], attn_mask.shape[3]))
        return torch.empty_like(q)
    monkeypatch.setattr(F, "scaled_dot_product_attention", watched)
    q, k, v, _, mask = parts(17, heads, key_heads, dtype)
    assert attend_rows(*(each.to("meta") for each in (q, k, v, mask))).shape == q.shape
    assert seen == [(4, (4, 17), (4, 17), 17)]


@pytest.mark.parametrize("heads, key_heads", HEADS, ids=HEADS_IDS)
def test_keys_that_are_spread_are_those_that_heads_share(heads, key_heads):
    q, k, v, there, mask = parts(17, heads, key_heads)

    def spread(q, k, v, mask):
        return F.scaled_dot_product_attention(q, *llama._spread(q, k, v), attn_mask=mask)
    expected = output_and_gradients(fused, q, k, v, mask, there)
    for ours, theirs in zip(output_and_gradients(spread, q, k, v, mask, there), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("heads, key_heads", HEADS, ids=HEADS_IDS)
@pytest.mark.parametrize("tokens", [3, 16, llama.FEW, llama.FEW + 1])
def test_the_next_token_is_the_last_of_a_row(tokens, heads, key_heads, padded):
    q, k, v, _, mask = parts(tokens, heads, key_heads)
    mask = mask[:, :, -1:] if padded else None
    with torch.no_grad():
        ours = attend_next(q[:, :, -1:], k.permute(2, 0, 1, 3), v.permute(2, 0, 1, 3), mask)
        torch.testing.assert_close(ours, fused(q[:, :, -1:], k, v, mask), rtol=0, atol=1e-12)


@pytest.mark.parametrize("heads, key_heads", HEADS, ids=HEADS_IDS)
def test_in_bfloat16_all_are_near_the_exact_one(heads, key_heads):
    q, k, v, there, mask = parts(17, heads, key_heads)
    expected = output_and_gradients(fused, q, k, v, mask, there)
    rounded = [each.detach().bfloat16().requires_grad_() for each in (q, k, v)]
    mask = bias(mask == 0, torch.bfloat16)
    for ours, exact in zip(output_and_gradients(attend_rows, *rounded, mask, there), expected, strict=True):
        assert ours.dtype == torch.bfloat16 and (ours - exact).norm() < 0.02 * exact.norm()
    with torch.no_grad():
        assert (attend_rows(*rounded, mask)[0] - expected[0][0]).norm() < 0.02 * expected[0][0].norm()
