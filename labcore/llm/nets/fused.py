"""The layers of Llama, Qwen2 and Qwen3 on a GPU, with few operations: tokens side by side, without padding.

    x, y = add_norm(x, δ)      δ = attend(y W_q, y W_k, y W_v) W_o
    x, y = add_norm(x, δ)      δ = (silu(y W_gate) · y W_up) W_down

`Decoding` is a decoding step with buffers at fixed addresses. It reads only keys and values that exist, and those of a
prompt once for its group. `outputs` is the pass of an update in bf16: prompts and completions of all rows one behind
the other, with torch's attention for rows of unequal length. Both use the modules' weights, adapters and biases
included. Models with other architectures or activations, attention windows, or rotary frequencies that depend on the
length of the text run by their own code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import DynamicCache, LlamaModel, Qwen2Model, Qwen3Model

from labcore.llm.batch import Prompts
from labcore.llm.nets import compiled, recompute
from labcore.llm.nets.critic import Critic, Network
from labcore.llm.nets.layer_reports import passed
from labcore.maths import gpu

FILLED = 256  # tokens: of their multiples passes are made, of longer passes of multiples of an eighth
TRUNKS = (LlamaModel, Qwen2Model, Qwen3Model)
ROPE = ("default", "linear", "llama3", "yarn")  # whose frequencies are the same at every length
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]  # layer, q, k, v (N, heads, D) -> (N, heads, D)


def fits(model: Network) -> bool:
    """Whether `model` (a policy or a critic) has exactly these layers."""
    trunk: Any = model.trunk if isinstance(model, Critic) else getattr(model, "model", None)
    if type(trunk) not in TRUNKS:
        return False
    config = trunk.config
    size = _head_size(trunk)
    return bool(
        config.hidden_act == "silu" and config.rope_parameters["rope_type"] in ROPE and size & (size - 1) == 0
        and all(kind == "full_attention" for kind in getattr(config, "layer_types", None) or ()))


def serves(model: Network) -> bool:
    """Whether `outputs` can be the pass of an update: torch's attention for rows of unequal length is one of half
    precision on CUDA."""
    weight = next(model.parameters())
    return (weight.dtype in (torch.bfloat16, torch.float16) and bool(gpu.kernels(weight)) and fits(model)
            and 16 <= _head_size(_trunk(model)) <= 256 and not compiled.marked(model))


# ---------------------------------------------------------------- layers


def _layer(number: int, layer: Any, x: Tensor, delta: Tensor | None, attend: Attend) -> tuple[Tensor, Tensor]:
    """A layer on x + delta, without a gradient: the two parts of its output. (N, H) each"""
    attention, mlp = layer.self_attn, layer.mlp
    x, y = gpu.add_norm(x, delta, layer.input_layernorm)
    q, k, v = (part.unflatten(-1, (-1, attention.head_dim))
               for part in _products(y, attention.q_proj, attention.k_proj, attention.v_proj))
    if hasattr(attention, "q_norm"):
        q, k = gpu.add_norm(q, None, attention.q_norm)[1], gpu.add_norm(k, None, attention.k_norm)[1]
    x, y = gpu.add_norm(x, attention.o_proj(attend(number, q, k, v).flatten(1)), layer.post_attention_layernorm)
    return x, mlp.down_proj(gpu.swiglu(*_products(y, mlp.gate_proj, mlp.up_proj)))


def _products(y: Tensor, *parts: nn.Module) -> Sequence[Tensor]:
    """y by each of some matrices; as one product where these stand side by side in memory."""
    weight = gpu.joined([getattr(part, "weight", None) if type(part) is nn.Linear else None for part in parts])
    if weight is None:
        return [part(y) for part in parts]
    biases = [getattr(part, "bias", None) for part in parts]
    bias = gpu.joined(biases)
    if bias is None and any(each is not None for each in biases):
        return [part(y) for part in parts]
    sizes = [len(part.weight) for part in parts]  # type: ignore[arg-type]  # `joined` found that each has one
    return torch.split(F.linear(y, weight, bias), sizes, -1)


def room(model: Network) -> dict[Tensor, Tensor]:
    """Allocate bfloat16 copies of all weights. Weights that are multiplied together are contiguous."""
    device = next(model.parameters()).device

    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.bfloat16, device=device)
    beside = {weight: part for group in _neighbours(model) for weight, part in zip(
        group, empty(sum(map(len, group)), *group[0].shape[1:]).split([*map(len, group)]), strict=True)}
    return {weight: beside[weight] if weight in beside else empty(*weight.shape) for weight in model.parameters()}


def _neighbours(model: Network) -> Iterator[list[Tensor]]:
    for layer in _trunk(model).layers if fits(model) else ():
        attention, mlp = layer.self_attn, layer.mlp
        for parts in ((attention.q_proj, attention.k_proj, attention.v_proj), (mlp.gate_proj, mlp.up_proj)):
            if all(type(part) is nn.Linear for part in parts):
                yield [part.weight for part in parts]
                if all(part.bias is not None for part in parts):
                    yield [part.bias for part in parts]


def _angles(trunk: Any, positions: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin of the angles that turn keys and queries at these positions. (N,) -> (N, D/2) each, float32"""
    angles = positions[:, None] * trunk.rotary_emb.inv_freq.float()
    return angles.cos() * trunk.rotary_emb.attention_scaling, angles.sin() * trunk.rotary_emb.attention_scaling


# ---------------------------------------------------------------- decoding


class Decoding:
    """The key-value cache of P prompts of up to `width` tokens and `rows` completions of up to `length` tokens, and the
    step that appends a token to each completion. Prompts are padded on the left."""

    def __init__(self, model: Network, prompts: int, rows: int, width: int, length: int):
        trunk, config = _trunk(model), model.config
        weight, layers, heads = next(model.parameters()), config.num_hidden_layers, config.num_key_value_heads
        size = _head_size(trunk)
        self._model, self._scale = model, float(trunk.layers[0].self_attn.scaling)
        self._prompts: Tensor = weight.new_empty(layers, 2, prompts, heads, width, size)
        self._own: Tensor = weight.new_empty(layers, 2, rows, heads, length, size)
        self._starts = torch.zeros(prompts, dtype=torch.long, device=weight.device)
        self._ended = torch.zeros(rows, dtype=torch.bool, device=weight.device)
        for buffer in (self._prompts, self._own):
            buffer.zero_()  # columns that are not seen must still be numbers

    @property
    def nbytes(self) -> int:
        return self._prompts.nbytes + self._own.nbytes

    def take(self, cache: DynamicCache, prompts: Prompts) -> None:
        """Begin with these prompts, whose keys and values are in the cache."""
        width, most = prompts.ids.shape[1], self._prompts.shape[4]
        for buffers, layer in zip(self._prompts, cache.layers, strict=True):
            for buffer, new in zip(buffers, (layer.keys, layer.values), strict=True):
                buffer[:, :, most - width:].copy_(new)
        self._starts.copy_(most - prompts.mask.sum(1))
        self._ended.zero_()

    def leave_out(self, ended: Tensor) -> None:
        """Compute no attention for rows that have ended any more. (B,)"""
        self._ended.copy_(ended)

    def step(self, ids: Tensor, positions: Tensor, seen: Tensor) -> Tensor:
        """The logits after one more token of each row: `ids` and `positions` (B,); `seen` (1,) are there already.
        -> (B, V)"""
        trunk, model = _trunk(self._model), self._model
        cos, sin = _angles(trunk, positions)

        def attend(number: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            prompt, own = self._prompts[number], self._own[number]
            return gpu.attend(q, k, v, cos, sin, (prompt[0], prompt[1]), (own[0], own[1]), self._starts, self._ended,
                              seen, self._scale)
        x, delta = trunk.embed_tokens(ids), None
        for number, layer in enumerate(trunk.layers):
            x, delta = _layer(number, layer, x, delta, attend)
        logits: Tensor = model.lm_head(gpu.add_norm(x, delta, trunk.norm)[1])
        return logits


# ---------------------------------------------------------------- update


def outputs(model: Network, prompts: Prompts, ids: Tensor) -> Tensor:
    """Output that predicts each completion token, rows side by side without padding. ids (P·G, T) -> (P·G, T, …)"""
    trunk, length = _trunk(model), ids.shape[1]
    tokens, places, bounds, longest = side_by_side(prompts, ids)
    rows = gpu.Rows(bounds, longest, *_angles(trunk, places))

    def run(layer: Any, x: Tensor, delta: Tensor | None) -> tuple[Tensor, Tensor]:
        return _mlp(layer, *_attention(layer, x, delta, rows))
    x: Any = trunk.embed_tokens(tokens)
    delta: Any = None
    for number, layer in enumerate(trunk.layers, 1):
        x, delta = recompute.run(layer, run, layer, x, delta)
        passed(x, number, len(trunk.layers))
    predicting = (bounds[1:len(ids) + 1, None] - length + torch.arange(length, device=ids.device)).flatten()
    last = x.index_select(0, predicting) + delta.index_select(0, predicting)
    states = _norm(last, trunk.norm).view(*ids.shape, -1)
    found: Tensor = model.head(states).float() if isinstance(model, Critic) else model.lm_head(states)
    return found


def side_by_side(prompts: Prompts, ids: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
    """The tokens of all rows behind each other, (N,), without padding and without the last one of each row, from which
    nothing is predicted; their positions (N,); where each row begins and the last one ends, (B + 2,) or more; and
    the most tokens of a row.

    Rows of zeros fill N up, so that few shapes occur: libraries need 100 ms and more for one that they meet first. The
    host waits for nothing here where it knows the lengths.
    """
    group, width = len(ids) // len(prompts), prompts.ids.shape[1] + ids.shape[1] - 1
    count = group * sum(prompts.lengths) + len(ids) * (ids.shape[1] - 1)
    step = max(FILLED, 2**(count.bit_length() - 1) // 8)
    filled = -(-(count + 1) // step) * step
    longest = max(*prompts.lengths, 0) + ids.shape[1] - 1
    more, rest = divmod(filled - count - 1, longest)  # rows of zeros as long as the others, and a last one
    whole = F.pad(torch.cat([prompts.ids.repeat_interleave(group, 0), ids[:, :-1]], 1), (0, 0, 0, 1))
    lengths = prompts.mask.sum(1).repeat_interleave(group) + ids.shape[1] - 1
    lengths = F.pad(F.pad(lengths, (0, more), value=longest), (0, 1), value=rest + 1)
    bounds = F.pad(lengths.cumsum(0), (1, 0))
    row = torch.repeat_interleave(torch.arange(len(lengths), device=ids.device), lengths, output_size=filled)
    places = torch.arange(filled, device=ids.device) - bounds[row]
    columns = torch.where(row < len(ids), width - lengths[row] + places, 0)
    return whole.flatten()[row.clamp(max=len(ids)) * width + columns], places, bounds.int(), longest


def _attention(layer: Any, x: Tensor, delta: Tensor | None, rows: gpu.Rows) -> tuple[Tensor, Tensor]:
    """x + delta, and the output of attention on it. (N, H) each"""
    attention, norm = layer.self_attn, layer.input_layernorm
    parts = (attention.q_proj, attention.k_proj, attention.v_proj)
    if (gpu.kernels(x) and _plain(*parts, attention.o_proj) and attention.o_proj.bias is None
            and not hasattr(attention, "q_norm")):
        biases = [part.bias for part in parts if part.bias is not None]
        if len(biases) in (0, len(parts)):
            return gpu.attention(x, delta, (norm.weight, norm.variance_epsilon),
                                 [part.weight for part in (*parts, attention.o_proj)], biases, rows, attention.scaling)
    x = x if delta is None else x + delta
    y = _norm(x, norm)
    q, k, v = (part(y).unflatten(-1, (-1, attention.head_dim)) for part in parts)
    if hasattr(attention, "q_norm"):
        q, k = _norm(q, attention.q_norm), _norm(k, attention.k_norm)
    q, k = gpu.turn(q, rows.cos, rows.sin), gpu.turn(k, rows.cos, rows.sin)
    return x, attention.o_proj(gpu.rows_attend(q, k, v, rows, attention.scaling)[0].flatten(1))


def _mlp(layer: Any, x: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
    """x + delta, and the output of the MLP on it. (N, H) each"""
    mlp, norm = layer.mlp, layer.post_attention_layernorm
    parts = (mlp.gate_proj, mlp.up_proj, mlp.down_proj)
    if gpu.kernels(x) and _plain(*parts) and all(part.bias is None for part in parts):
        return gpu.mlp(x, delta, (norm.weight, norm.variance_epsilon), [part.weight for part in parts])
    x = x + delta
    return x, mlp(_norm(x, norm))


def _plain(*parts: nn.Module) -> bool:
    """Whether they are matrices without an adapter."""
    return all(type(part) is nn.Linear for part in parts)


def _norm(x: Tensor, norm: Any) -> Tensor:
    return F.rms_norm(x, norm.weight.shape, norm.weight, norm.variance_epsilon)


def _trunk(model: Network) -> Any:
    return model.trunk if isinstance(model, Critic) else model.model


def _head_size(trunk: Any) -> int:
    size: int = trunk.layers[0].self_attn.head_dim
    return size
