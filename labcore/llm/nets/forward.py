"""The model's output at every completion token, each prompt computed once for all its completions.

`shared` runs the P prompts, repeats their key-value cache G times and runs only the completions on top, gradient
included: the prompt's graph hangs behind the cache. `plain` runs every prompt + completion whole; it is the
reference that the tests hold the others to, and the path of models whose cache cannot be repeated. Short rows of the
usual models run faster `packed`, and those of a plain Llama faster still by its own equations, in `llama`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import DynamicCache, PreTrainedModel

from labcore.llm.batch import Prompts
from labcore.llm.nets import llama
from labcore.llm.nets.packed import packed, packs, short

Network = PreTrainedModel | nn.Module
MAX_ELEMENTS = 2**26  # of one output tensor: what bounds the memory of a forward pass
SHORT = 128  # tokens of a row, so few that a matrix of all pairs of them costs little memory


def shares_prefixes(model: Network) -> bool:
    """Whether the model's cache is one of keys and values per position, which can be repeated for a group."""
    config = model.config
    recurrent = any(kind not in ("full_attention", "sliding_attention", "chunked_attention")
                    for kind in getattr(config, "layer_types", None) or ())
    stateful = getattr(model, "_is_stateful", False)
    cacheless = "past_key_values" not in signature(getattr(model, "trunk", model).forward).parameters
    return not (recurrent or stateful or cacheless or getattr(config, "is_encoder_decoder", False))


def positions(mask: Tensor) -> Tensor:
    """Position of each token among its row's tokens, 0 under padding. (B, S) -> (B, S)"""
    return (mask.long().cumsum(1) - 1).clamp(min=0)


def attention_mask(mask: Tensor) -> Tensor | None:
    """The mask as a model wants it; None where there is no padding, which spares the model all masking at decoding."""
    return None if mask.all() else mask.long()


def prefill(model: Network, prompts: Prompts, group_size: int) -> tuple[Tensor, DynamicCache]:
    """Run each prompt once. Returns the output at its last token (P·G, 1, …) and the cache of all P·G rows."""
    output = model(input_ids=prompts.ids, attention_mask=attention_mask(prompts.mask),
                   position_ids=positions(prompts.mask), past_key_values=DynamicCache(config=model.config),
                   use_cache=True, logits_to_keep=1)
    cache = output.past_key_values
    if group_size > 1:
        cache.batch_repeat_interleave(group_size)
    return output.logits[:, -1:].repeat_interleave(group_size, 0), cache


def extend(model: Network, ids: Tensor, prompt_mask: Tensor, seen: int, cache: DynamicCache) -> Tensor:
    """Run the next completion tokens `ids` (B, N) after a prompt and `seen` earlier ones. Returns (B, N, …)."""
    rows, width = ids.shape
    mask = torch.cat([prompt_mask, prompt_mask.new_ones(rows, seen + width)], 1)
    position_ids = prompt_mask.sum(1, keepdim=True) + torch.arange(seen, seen + width, device=ids.device)
    return model(input_ids=ids, attention_mask=attention_mask(mask), position_ids=position_ids,
                 past_key_values=cache, use_cache=True).logits


def shared(model: Network, prompts: Prompts, ids: Tensor) -> Tensor:
    """Output that predicts each completion token, prompts computed once. ids (P·G, T) -> (P·G, T, …)"""
    group_size = len(ids) // len(prompts)
    first, cache = prefill(model, prompts, group_size)
    if ids.shape[1] == 1:
        return first
    rest = extend(model, ids[:, :-1], prompts.mask.repeat_interleave(group_size, 0), 0, cache)
    return torch.cat([first, rest], 1)


def plain(model: Network, prompts: Prompts, ids: Tensor) -> Tensor:
    """Output that predicts each completion token, every row run whole. ids (P·G, T) -> (P·G, T, …)"""
    group_size = len(ids) // len(prompts)
    mask = prompts.mask.repeat_interleave(group_size, 0)
    mask = torch.cat([mask, mask.new_ones(ids.shape[0], ids.shape[1] - 1)], 1)
    whole = torch.cat([prompts.ids.repeat_interleave(group_size, 0), ids[:, :-1]], 1)
    return model(input_ids=whole, attention_mask=attention_mask(mask), position_ids=positions(mask),
                 use_cache=False, logits_to_keep=ids.shape[1]).logits


def completion_outputs(model: Network, prompts: Prompts, ids: Tensor) -> Tensor:
    """Logits (or a critic's values) that predict each completion token: the cheapest exact path for this model."""
    path: Callable[..., Tensor] = plain
    if llama.supported(model) and short(prompts, ids):
        path = llama.outputs
    elif len(ids) > len(prompts) and shares_prefixes(model):
        path = packed if packs(model, prompts, ids) else shared
    with _attention(model, prompts.ids.shape[1] + ids.shape[1]):
        return path(model, prompts, ids)


def micro_batches(model: Network, prompts: int, rows: int, length: int) -> Iterator[tuple[slice, slice]]:
    """Cut a batch of `prompts` prompts and `rows` completions into parts that fit in memory.

    Yields the slice of prompts and the slice of rows of each part; groups stay whole.
    """
    group_size = rows // prompts
    width = getattr(model.config, "vocab_size", 1)
    part = max(1, MAX_ELEMENTS // (group_size * length * width))
    for start in range(0, prompts, part):
        stop = min(start + part, prompts)
        yield slice(start, stop), slice(start * group_size, stop * group_size)


@contextmanager
def precision(model: Network, dtype: str) -> Iterator[None]:
    """The context of a forward pass: where `dtype` is "bf16" the model's weights are in bfloat16 inside.

    They are rounded once on the way in, however many passes follow, and their gradients flow to the float32 weights
    that the optimizer moves. Buffers, such as rotary frequencies, stay as they are.
    """
    if dtype != "bf16":
        yield
        return
    with standing_in(model, {weight: weight.to(torch.bfloat16) for weight in model.parameters()}):
        yield


@contextmanager
def standing_in(model: Network, others: Mapping[Tensor, Tensor]) -> Iterator[None]:
    """Inside, the model computes with the others in place of its weights; tied weights are one."""
    slots = [(module._parameters, name, weight) for module in model.modules()
             for name, weight in module._parameters.items() if weight in others]
    for holder, name, weight in slots:
        holder[name] = others[weight]
    try:
        yield
    finally:
        for holder, name, weight in slots:
            holder[name] = weight


def _attention(model: Network, tokens: int) -> AbstractContextManager[Any]:
    """On the cpu, in bfloat16, the backward pass of torch's fused attention takes up to eight times the plain one's."""
    weight = next(model.parameters())
    slow = weight.device.type == "cpu" and weight.dtype == torch.bfloat16 and torch.is_grad_enabled()
    return sdpa_kernel(SDPBackend.MATH) if slow and tokens <= SHORT else nullcontext()
