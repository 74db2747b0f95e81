"""Llama's equations on the weights of a transformers model, with fewer and larger operations than its own classes.

    x ← x + attend(RoPE(q), RoPE(k), v) W_out      q, k, v = rms(x) W_qkv
    x ← x + (silu(g) · u) W_down                      g, u = rms(x) W_gate_up

The weights stay where they are and autograd reaches them there. `fused` lays those of a layer side by side once a
pass, with the scale of each norm multiplied into the matrix behind it, and in such an order that the two numbers that
RoPE turns together are neighbours: a complex number, turned by one multiplication.

Left out: every variant of Llama (biases, other activations, scaled RoPE, adapters), which `speaks` sends to the
model's own code.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import LlamaForCausalLM, LlamaModel
from transformers.activations import SiLUActivation
from transformers.models.llama import modeling_llama as hf

from labcore.llm.batch import Prompts
from labcore.llm.critic import Critic
from labcore.llm.packed import bias, pack, unpack

PARTS = {nn.Linear, nn.Embedding, nn.ModuleList, SiLUActivation, hf.LlamaRMSNorm, hf.LlamaMLP, hf.LlamaAttention,
         hf.LlamaDecoderLayer, hf.LlamaRotaryEmbedding, hf.LlamaModel}
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]  # layer, q, k, v (B, heads, S, D) -> (B, heads, S, D)


class Layer(NamedTuple):
    """The matrices of one layer, (outputs, inputs)."""

    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor


def speaks(model: nn.Module) -> bool:
    """Whether `model` (a policy or a critic) is a Llama of exactly these equations."""
    if type(model) not in (LlamaForCausalLM, Critic):
        return False
    trunk, config = _trunk(model), model.config
    return (type(trunk) is LlamaModel and {type(part) for part in trunk.modules()} <= PARTS
            and not (config.attention_bias or config.mlp_bias or (model.training and config.attention_dropout))
            and config.rope_parameters["rope_type"] == "default"
            and trunk.norm.weight.device.type != "mps")  # where complex numbers are young


def outputs(model: nn.Module, prompts: Prompts, ids: Tensor) -> Tensor:
    """Output that predicts each completion token, all of a prompt in one row. ids (P·G, T) -> (P·G, T, …)"""
    row = pack(prompts, ids)
    layers, turns = fused(model), _turns(model, row.positions)
    mask = row.mask(layers[0].out.dtype).expand(len(prompts), model.config.num_attention_heads, -1, -1).flatten(0, 1)

    def attend(_: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return _attention(q, k, v, mask)
    return unpack(_run(model, layers, row.ids, turns, attend, keep=row.outputs), ids)


def steps(model: nn.Module, prompts: Prompts, group_size: int, length: int) -> Generator[Tensor, Tensor, None]:
    """Coroutine: yields the next token's logits (B, V); is sent the token chosen (B,), at most `length` times."""
    layers, (count, width) = fused(model), prompts.ids.shape
    weight, rows = layers[0].out, count * group_size
    there = F.pad(prompts.mask, (0, length), value=True)
    turns = _turns(model, (there.cumsum(1) - 1).clamp(min=0))
    sees = there[:, None, None, :width] & there.new_ones(width, width).tril()
    # Of each layer the keys and the values, time first: what a step writes, and what it reads, is in one piece.
    cache = weight.new_empty(len(layers), 2, width + length, rows, model.config.num_key_value_heads,
                             _head_size(model))

    def prefill(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        for part, each in zip(cache[layer], (k, v), strict=True):
            part[:width].unflatten(1, (count, group_size)).copy_(each.permute(2, 0, 1, 3).unsqueeze(2))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias(sees, q.dtype), enable_gqa=True)

    def extend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        cache[layer, 0, seen], cache[layer, 1, seen] = k[:, :, 0], v[:, :, 0]
        keys, values = cache[layer, :, :seen + 1].permute(0, 2, 3, 1, 4)
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True)

    token = yield _run(model, layers, prompts.ids, turns[:, :width], prefill, keep=1)[:, 0].repeat_interleave(
        group_size, 0)
    turns = turns.repeat_interleave(group_size, 0)
    padded = None if prompts.mask.all() else bias(there, weight.dtype).repeat_interleave(group_size, 0)[:, None, None]
    for seen in range(width, width + length):
        mask = padded if padded is None else padded[..., :seen + 1]
        token = yield _run(model, layers, token[:, None], turns[:, seen:seen + 1], extend, keep=1)[:, 0]


def fused(model: nn.Module) -> list[Layer]:
    """The matrices of every layer: the scale of the norm before them inside, RoPE's pairs side by side."""
    size = _head_size(model)
    layers = []
    for layer in _trunk(model).layers:
        attention, mlp = layer.self_attn, layer.mlp
        qkv = [_pairs(attention.q_proj.weight, size), _pairs(attention.k_proj.weight, size), attention.v_proj.weight]
        layers.append(Layer(
            torch.cat(qkv) * layer.input_layernorm.weight, attention.o_proj.weight,
            torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]) * layer.post_attention_layernorm.weight,
            mlp.down_proj.weight))
    return layers


def _run(model: nn.Module, layers: list[Layer], ids: Tensor, turns: Tensor, attend: Attend, keep: int) -> Tensor:
    """The equations above, and the head's output at the last `keep` positions. (B, S) -> (B, keep, …)"""
    trunk, size, heads = _trunk(model), _head_size(model), model.config.num_attention_heads
    rms = partial(F.rms_norm, normalized_shape=(model.config.hidden_size,), eps=model.config.rms_norm_eps)
    x = trunk.embed_tokens(ids.flatten())  # (B·S, H): all but attention is a matter of single tokens
    for layer, each in enumerate(layers):
        qkv = F.linear(rms(x), each.qkv).view(*ids.shape, -1, size)
        kv_heads = (qkv.shape[2] - heads) // 2
        turned, v = qkv.split([heads + kv_heads, kv_heads], 2)
        q, k = _rope(turned, turns).split([heads, kv_heads], 2)
        seen = attend(layer, q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2).flatten(2)
        if each is layers[-1]:  # of the other positions only the keys and values were wanted
            x, seen = x.view(*ids.shape, -1)[:, -keep:].flatten(0, 1), seen[:, -keep:]
        x = torch.addmm(x, seen.flatten(0, 1), each.out.T)
        gate, up = F.linear(rms(x), each.gate_up).chunk(2, -1)
        x = torch.addmm(x, F.silu(gate) * up, each.down.T)
    head = model.head if isinstance(model, Critic) else model.lm_head
    return head(rms(x) * trunk.norm.weight).view(len(ids), keep, -1)


def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """softmax(q kᵀ / √D + mask) v. (B, heads, S, D), mask (B·heads, S, S) -> (B, heads, S, D)

    For short rows, where torch's fused attention is slower, in bfloat16 several times.
    """
    shape, group = q.shape, q.shape[1] // k.shape[1]
    q, k, v = (x.flatten(0, 1) for x in (q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)))
    weights = torch.baddbmm(mask, q, k.mT, alpha=shape[-1] ** -0.5).softmax(-1)
    return (weights @ v).view(shape)


def _rope(x: Tensor, turns: Tensor) -> Tensor:
    """x · e^{iθ}, neighbours a complex number. (B, S, heads, D), (B, S, 1, D/2) -> (B, S, heads, D)"""
    pairs = torch.view_as_complex(x.to(torch.promote_types(x.dtype, torch.float32)).unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)


@torch.no_grad()
def _turns(model: nn.Module, positions: Tensor) -> Tensor:
    """e^{iθ} of every position and pair. (B, S) -> (B, S, 1, D/2)"""
    angles = positions[..., None, None] * _trunk(model).rotary_emb.inv_freq
    return torch.polar(torch.ones_like(angles), angles)


def _pairs(weight: Tensor, size: int) -> Tensor:
    """The rows of a query or key matrix, those that RoPE turns together (d and d + D/2 of a head) side by side."""
    return weight.view(-1, 2, size // 2, weight.shape[-1]).transpose(1, 2).flatten(0, 2)


def _trunk(model: nn.Module) -> LlamaModel:
    return model.trunk if isinstance(model, Critic) else model.model


def _head_size(model: nn.Module) -> int:
    return _trunk(model).layers[0].self_attn.head_dim
