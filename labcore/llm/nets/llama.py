"""Llama's equations on the weights of a transformers model, with fewer and larger operations than its own classes.

    x ← x + attend(RoPE(y W_q), RoPE(y W_k), y W_v) W_o        y = rms(x)
    x ← x + (silu(y W_gate) · y W_up) W_down                   y = rms(x)

The functions use the model's own weights, so autograd works as usual. Once a pass the rows of W_q and W_k are
reordered, so that the two numbers that RoPE rotates together are neighbours: as a complex number they need one
multiplication. Each pass chooses its attention: rows of several completions, a prompt, or the next token. In the first
layer, y W_q, y W_k and y W_v depend only on the token itself, so they are computed once for each token of a small
vocabulary.

Left out: every variant of Llama (biases, other activations, scaled RoPE, adapters). `supported` tells them apart, and
they run by the model's own code.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import LlamaForCausalLM, LlamaModel
from transformers.activations import SiLUActivation
from transformers.models.llama import modeling_llama as hf

from labcore.llm.batch import Prompts
from labcore.llm.nets import recompute
from labcore.llm.nets.branches import Branches
from labcore.llm.nets.critic import Critic, Network
from labcore.llm.nets.elementwise import rms_norm, swiglu
from labcore.llm.nets.layer_reports import passed
from labcore.llm.nets.packed import bias, pack, unpack
from labcore.llm.nets.tape import Multiply, Tape, product

# ---------------------------------------------------------------- attention
# softmax(q kᵀ / √D + mask) v, in the form that the device computes fastest: they differ in rounding only.
#
# Measured on AVX-512 processors, one thread: torch's fused kernel handles keys that do not fill a vector one at a time,
# so 63 keys take it twice as long as 64; a single query on a few keys takes it twice as long as two plain sums; and its
# gradient in bfloat16 takes four to ten times as long as that of plain matrix products. On a GPU torch has no fused
# kernel for a mask where heads share keys, but one for keys that are spread over the heads.
#
# The choice never depends on whether a gradient is wanted in fp32: entropies of a pass without one are thresholds for
# those of the update.

VECTOR = 16  # float32 numbers in the widest vector of a cpu
FEW = 64  # keys: beyond, the fused kernel is as fast as the sums


def attend_rows(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Every token of a row is a query. q (B, heads, S, D), k and v (B, key heads, S, D), mask (B or 1, 1, S, S)."""
    if q.device.type != "cpu":
        return F.scaled_dot_product_attention(q, *_spread(q, k, v), attn_mask=mask)
    if q.dtype == torch.bfloat16 and torch.is_grad_enabled():
        return _products(q, k, v, mask)
    mask = aligned(mask)
    if missing := mask.shape[3] - k.shape[2]:
        k, v = (F.pad(each, (0, 0, 0, missing)) for each in (k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


def aligned(mask: Tensor) -> Tensor:
    """The mask for `attend_rows` with columns that no token sees, so that the keys fill the vectors of a cpu."""
    missing = -mask.shape[3] % VECTOR if mask.device.type == "cpu" and mask.dtype != torch.bfloat16 else 0
    return F.pad(mask, (0, missing), value=torch.finfo(mask.dtype).min) if missing else mask


def attend_next(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """One query a row. q (B, heads, 1, D), keys and values time first, (S, B, key heads, D), mask (B, 1, 1, S)."""
    plain = q.device.type == "cpu" and q.dtype != torch.bfloat16 and q.shape[1] == keys.shape[2] and len(keys) <= FEW
    if not plain:
        k, v = keys.permute(1, 2, 0, 3), values.permute(1, 2, 0, 3)
        if q.device.type == "cpu":  # the queries that share a key head become its rows: their keys are read once
            rows = q.reshape(len(q), keys.shape[2], -1, q.shape[3])
            return F.scaled_dot_product_attention(rows, k, v, attn_mask=mask).reshape(q.shape)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    logits = torch.linalg.vecdot(keys, q[:, :, 0] * q.shape[-1] ** -0.5)  # (S, B, heads)
    if mask is not None:
        logits = logits + mask[:, 0, 0].T[..., None]
    seen: Tensor = torch.linalg.vecdot(logits.softmax(0)[..., None], values, dim=0)
    return seen[:, :, None]


def _products(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    k, v = _spread(q, k, v)
    found: Tensor = (q * q.shape[-1] ** -0.5 @ k.mT + mask).softmax(-1) @ v
    return found


def _spread(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """The keys and values of each head of q, which several may share: (B, heads, S, D)."""
    group = q.shape[1] // k.shape[1]
    return (k, v) if group == 1 else (k.repeat_interleave(group, 1), v.repeat_interleave(group, 1))


# ---------------------------------------------------------------- llama

PARTS = {nn.Linear, nn.Embedding, nn.ModuleList, SiLUActivation, hf.LlamaRMSNorm, hf.LlamaMLP, hf.LlamaAttention,
         hf.LlamaDecoderLayer, hf.LlamaRotaryEmbedding, hf.LlamaModel}
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]  # layer, q, k, v (B, heads, S, D) -> (B, heads, S, D)
Kept = Callable[[Tensor], Tensor]  # (B, S, …) -> (B, N, …): the positions whose outputs are needed
# The most tokens of a vocabulary that is looked up. The choice depends on the model alone, because a pass with the
# look-up and one without may differ by rounding.
SMALL = 256
Words = tuple[Tensor, Tensor, Tensor]  # the first layer's y W_q, y W_k and y W_v for each token of the vocabulary


def supported(model: Network) -> bool:
    """Whether `model` (a policy or a critic) is a Llama of exactly these equations."""
    if type(model) not in (LlamaForCausalLM, Critic):
        return False
    trunk, config = _trunk(model), model.config
    return (type(trunk) is LlamaModel and {*map(type, recompute.parts(trunk))} <= PARTS
            and not (config.attention_bias or config.mlp_bias or (model.training and config.attention_dropout))
            and config.rope_parameters["rope_type"] == "default"
            and trunk.norm.weight.device.type != "mps")  # where complex numbers are young


def outputs(model: Network, prompts: Prompts, ids: Tensor, tape: Tape | None = None,
            extents: Tensor | None = None, at_end: bool = False) -> Tensor:
    """The output that predicts each completion token, with one row for each prompt. ids (P·G, T) -> (P·G, T, …)

    `extents` as in `pack`. `tape`, if any, was recorded while exactly these completions were sampled, and has nothing
    for places beyond their extents. `at_end` (with `extents`): only the output that predicts the last token of each.
    -> (P·G, 1, …)
    """
    row = pack(prompts, ids, extents)
    ends = row.ends(extents) if at_end and extents is not None else None
    kept = _last(row.outputs) if ends is None else _at(ends)
    mask = aligned(row.mask(next(model.parameters()).dtype))
    masks = [mask] * (model.config.num_hidden_layers - 1) + [kept(mask[:, 0])[:, None]]

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend_rows(q, k, v, masks[layer])
    multiply, matrices = tape.replaying(row) if tape else product, interleaved(model)
    words = _words(model, matrices)
    found = _run(model, matrices, words, row.ids, _turns(model, row.positions), attend, kept, multiply)
    if ends is None:
        return unpack(found, row)
    first = (ends[:, :, None] == ends[:, None]).byte().argmax(-1)  # equal completions have one output, bit for bit
    return _at(first)(found).flatten(0, 1)[:, None]


def steps(model: Network, prompts: Prompts, group_size: int, length: int,
          tape: Tape | None = None) -> Generator[Tensor, tuple[Tensor, Tensor], None]:
    """Coroutine: yields the next token's logits (B, V); is sent, at most `length` times, the token chosen (B,) and
    whether the completion continues (B,). Completions of a prompt that are alike so far are one row of a pass. Those
    that have ended have no row, and their logits no meaning."""
    matrices, (count, width) = interleaved(model), prompts.ids.shape
    words = _words(model, matrices)
    weight = next(model.parameters())
    there = F.pad(prompts.mask, (0, length), value=True)
    turns = _turns(model, (there.cumsum(1) - 1).clamp(min=0))
    sees = there[:, None, None, :width] & there.new_ones(width, width).tril()
    # The keys and values of each layer, time first, so that a step writes one contiguous block, and reads one for each
    # token. A tensor for each layer, so that they fit into gaps that the last update left.
    size = (2, width + length, count * group_size, model.config.num_key_value_heads, _head_size(model))
    cache = [weight.new_empty(size) for _ in matrices]

    def prefill(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        for part, each in zip(cache[layer], (k, v), strict=True):
            part[:width, :count] = each.permute(2, 0, 1, 3)
        return attend_rows(q, k, v, bias(sees[:, :, -q.shape[2]:], q.dtype))

    def extend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        cache[layer][0, seen, :len(k)], cache[layer][1, seen, :len(k)] = k[:, :, 0], v[:, :, 0]
        keys, values = cache[layer][:, :seen + 1, :len(k)]
        return attend_next(q, keys, values, mask)

    rows = Branches(count, group_size, weight.device)
    multiply = product if tape is None else tape.recording(count * group_size * length)
    logits = _run(model, matrices, words, prompts.ids, turns[:, :width], prefill, _last(1), multiply)[:, 0]
    padded = None if prompts.mask.all() else bias(there, weight.dtype)[:, None, None]
    for seen in range(width, width + length):
        token = rows.extended(*(yield rows.spread(logits)))
        for layer in cache if len(rows.copied) else ():
            layer[:, :seen].index_copy_(2, rows.copies, layer[:, :seen].index_select(2, rows.copied))
        mask = padded if padded is None else padded[rows.prompts, ..., :seen + 1]
        multiply = product if tape is None else tape.appending(rows.of, len(token))
        turn = turns[rows.prompts, seen:seen + 1]
        logits = _run(model, matrices, words, token[:, None], turn, extend, _last(1), multiply)[:, 0]
    yield rows.spread(logits)


def interleaved(model: Network) -> list[tuple[Tensor, Tensor]]:
    """W_q and W_k of each layer with RoPE's pairs (d and d + D/2 of a head) side by side. (heads·D, H) each"""
    half = _head_size(model) // 2

    def in_pairs(weight: Tensor) -> Tensor:
        ordered: Tensor = weight.unflatten(0, (-1, 2, half)).transpose(1, 2).flatten(0, 2)
        return ordered
    return [(in_pairs(layer.self_attn.q_proj.weight), in_pairs(layer.self_attn.k_proj.weight))
            for layer in _trunk(model).layers]


def _words(model: Network, matrices: list[tuple[Tensor, Tensor]]) -> Words | None:
    """The `Words` of the model; None if its vocabulary is large."""
    embed, layer = _trunk(model).embed_tokens, _trunk(model).layers[0]
    if embed.num_embeddings > SMALL:
        return None
    every = embed(torch.arange(embed.num_embeddings, device=embed.weight.device))  # padding gets no gradient
    y = rms_norm(every, layer.input_layernorm.weight, model.config.rms_norm_eps)
    q, k, v = (product(y, weight) for weight in (*matrices[0], layer.self_attn.v_proj.weight))
    return q, k, v


def _of(words: Tensor, ids: Tensor) -> Tensor:
    """Rows of `words`. (V, O), (B, S) -> (B, S, O). The gradient of a row is summed over all positions with this token,
    in float32 or a higher precision."""
    return F.embedding(ids, words.to(torch.promote_types(words.dtype, torch.float32))).to(words.dtype)


def _run(model: Network, matrices: list[tuple[Tensor, Tensor]], words: Words | None, ids: Tensor, turns: Tensor,
         attend: Attend, kept: Kept, multiply: Multiply) -> Tensor:
    """The equations above, and the head's output at the positions that are kept. (B, S) -> (B, N, …)"""
    def rms(x: Tensor, scale: Tensor) -> Tensor:
        return rms_norm(x, scale, model.config.rms_norm_eps)

    trunk, head = _trunk(model), model.head if isinstance(model, Critic) else model.lm_head

    def run(number: int, x: Tensor, w_q: Tensor, w_k: Tensor) -> Tensor:
        last = number + 1 == len(matrices)  # it computes only keys and values at positions that are not kept

        def cut(x: Tensor) -> Tensor:
            return kept(x.view(*ids.shape, -1)).flatten(0, 1) if last else x

        layer = trunk.layers[number]
        attention, mlp = layer.self_attn, layer.mlp
        if number or words is None:
            y = rms(x, layer.input_layernorm.weight)
            given = (cut(y), w_q), (y, w_k), (y, attention.v_proj.weight)
            q, k, v = (multiply(each, weight) for each, weight in given)
        else:
            q, k, v = map(_of, words, (kept(ids) if last else ids, ids, ids))
        q, k, v = (each.view(len(ids), -1, each.shape[-1] // attention.head_dim, attention.head_dim)
                   for each in (q, k, v))
        q, k, v = (each.transpose(1, 2) for each in (_rope(q, kept(turns) if last else turns), _rope(k, turns), v))
        seen = attend(number, q, k, v).transpose(1, 2).flatten(2)
        x = multiply(seen.flatten(0, 1), attention.o_proj.weight, cut(x))
        y = rms(x, layer.post_attention_layernorm.weight)
        inner = swiglu(multiply(y, mlp.gate_proj.weight), multiply(y, mlp.up_proj.weight))
        return multiply(inner, mlp.down_proj.weight, x)

    x = trunk.embed_tokens(ids.flatten())  # (B·S, H): all but attention is a matter of single tokens
    for number, (layer, pair) in enumerate(zip(trunk.layers, matrices, strict=True)):
        x = recompute.run(layer, run, number, x, *pair)
        passed(x, number + 1, len(matrices))
    found: Tensor = head(rms(x, trunk.norm.weight))
    return found.view(len(ids), -1, found.shape[-1])


def _last(count: int) -> Kept:
    """The last `count` positions of each row."""
    return lambda x: x[:, -count:]


def _at(places: Tensor) -> Kept:
    """The positions `places` (B, N) of each row."""
    def kept(x: Tensor) -> Tensor:
        starts = torch.arange(len(x), device=x.device)[:, None] * x.shape[1]
        return x.flatten(0, 1).index_select(0, (starts + places).flatten()).view(*places.shape, *x.shape[2:])
    return kept


def _rope(x: Tensor, turns: Tensor) -> Tensor:
    """x · e^{iθ}, neighbours a complex number. (B, S, heads, D), (B, S, 1, D/2) -> (B, S, heads, D)"""
    pairs = torch.view_as_complex(x.to(torch.promote_types(x.dtype, torch.float32)).unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)


@torch.no_grad()
def _turns(model: Network, positions: Tensor) -> Tensor:
    """e^{iθ} of every position and pair. (B, S) -> (B, S, 1, D/2)"""
    angles = positions[..., None, None] * _trunk(model).rotary_emb.inv_freq
    return torch.polar(torch.ones_like(angles), angles)


def _trunk(model: Network) -> LlamaModel:
    return model.trunk if isinstance(model, Critic) else model.model


def _head_size(model: Network) -> int:
    size: int = _trunk(model).layers[0].self_attn.head_dim
    return size
