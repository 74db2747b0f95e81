"""The model's output at every completion token, each prompt computed once for all its completions.

`shared` runs the P prompts, repeats their key-value cache G times and runs only the completions on it; gradients reach
the prompts through the cache. `plain` runs each prompt with its completion in full. Tests compare the other paths with
it, and models whose cache cannot be repeated use it. For short rows, `packed` is faster with the usual models, and the
module `llama` is still faster with a plain Llama.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import DynamicCache

from labcore.llm.batch import Prompts
from labcore.llm.nets import compiled, fused, head, llama, packed, recompute
from labcore.llm.nets.critic import Critic, Network
from labcore.llm.nets.layer_reports import reported
from labcore.llm.nets.tape import Tape
from labcore.llm.sizing.passes import Batch, Layers, Mode, Way, way
from labcore.maths import gpu
from labcore.maths.logprobs import WIDE

SHORT = 128  # tokens of a row, so few that a matrix of all pairs of them costs little memory


def shares_prefixes(model: Network) -> bool:
    """Whether the model's cache is one of keys and values per position, which can be repeated for a group."""
    config = model.config
    recurrent = any(kind not in ("full_attention", "sliding_attention", "chunked_attention")
                    for kind in getattr(config, "layer_types", None) or ())
    stateful = getattr(model, "_is_stateful", False)
    cacheless = not _takes_cache(type(getattr(model, "trunk", model)).forward)
    return not (recurrent or stateful or cacheless or getattr(config, "is_encoder_decoder", False))


@cache
def _takes_cache(forward: Callable[..., Any]) -> bool:
    return "past_key_values" in signature(forward).parameters


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
    logits: Tensor = model(input_ids=ids, attention_mask=attention_mask(mask), position_ids=position_ids,
                           past_key_values=cache, use_cache=True).logits
    return logits


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
    logits: Tensor = model(input_ids=whole, attention_mask=attention_mask(mask), position_ids=positions(mask),
                           use_cache=False, logits_to_keep=ids.shape[1]).logits
    return logits


def causal(model: Network, prompts: Prompts, ids: Tensor) -> Tensor:
    """The model's outputs with each row's padding moved to its end, so no mask is needed. ids (P·G, T) -> (P·G, T, …)

    Nothing before the padding sees it, positions count from 0, and torch can use its causal kernels.
    """
    group_size, length = len(ids) // len(prompts), ids.shape[1]
    lengths = prompts.mask.sum(1, keepdim=True).repeat_interleave(group_size, 0)
    whole = torch.cat([prompts.ids.repeat_interleave(group_size, 0), ids[:, :-1]], 1)
    columns = torch.arange(whole.shape[1], device=ids.device) + prompts.ids.shape[1] - lengths
    trunk = compiled.trunk_of(model, model.trunk if isinstance(model, Critic) else model.base_model)
    hidden = trunk(input_ids=whole.gather(1, columns % whole.shape[1]), use_cache=False).last_hidden_state
    predicting = lengths - 1 + torch.arange(length, device=ids.device)
    states = hidden.gather(1, predicting[..., None].expand(-1, -1, hidden.shape[2]))
    found: Tensor = model.head(states).float() if isinstance(model, Critic) else model.lm_head(states)
    return found


def layers_of(model: Network) -> Layers:
    """The sizes of a network, and how it can be run. Sizes that an architecture does not have are guessed."""
    config = model.config.get_text_config()
    hidden, heads = getattr(config, "hidden_size", None) or 1, getattr(config, "num_attention_heads", None) or 1
    width, critic = getattr(config, "head_dim", None) or hidden // heads, isinstance(model, Critic)
    inner = getattr(config, "intermediate_size", None) or getattr(config, "n_inner", None) or 4 * hidden
    own, shares = llama.supported(model), shares_prefixes(model)
    return Layers(
        layers=getattr(config, "num_hidden_layers", None) or 1, heads=heads, hidden=hidden, queries=heads * width,
        keys=(getattr(config, "num_key_value_heads", None) or heads) * width, inner=int(inner),
        vocabulary=model.head.out_features if isinstance(model, Critic) else config.vocab_size,
        packs=own or (shares and packed.can_pack(model)), own=own, fused=fused.fits(model),
        shares=shares, plain_head=shares and (critic or head.has_plain_head(model)), longest_packed=packed.LONGEST,
        most_logits=head.MAX_ELEMENTS)


def mode_of(model: Network) -> Mode:
    """The mode of its present passes."""
    weight = next(model.parameters())
    return Mode(weight.device.type, weight.element_size(), recompute.marked(model) and torch.is_grad_enabled(),
                compiled.marked(model), torch.is_grad_enabled())


def path_of(model: Network, prompts: Prompts, ids: Tensor, layers: Layers | None = None) -> Way:
    """The cheapest exact path of these completions (P·G, T); `layers` are the model's layers, if they are known."""
    done = Batch(len(prompts), len(ids) // len(prompts), 0, prompts.ids.shape[1], ids.shape[1])
    return way(layers or layers_of(model), done, mode_of(model))


def completion_outputs(model: Network, prompts: Prompts, ids: Tensor, tape: Tape | None = None,
                       extents: Tensor | None = None, at_end: bool = False) -> Tensor:
    """Logits (or a critic's values) that predict each completion token, by the cheapest exact path for this model, or
    from the `tape` that was recorded during sampling. `extents` (P·G,) are the lengths of the completions: outputs
    beyond them are undefined. `at_end` (with `extents`): only the output that predicts the last token of each. -> (P·G,
    T, …), or (P·G, 1, …)"""
    layers = layers_of(model)
    in_rows = partial(llama.outputs, at_end=at_end) if layers.own else packed.packed
    paths: dict[Way, Callable[..., Tensor]] = {
        "packed": partial(in_rows, extents=extents), "shared": shared,
        "causal": fused.outputs if fused.serves(model) else causal, "plain": plain}
    with _attention(model, prompts.ids.shape[1] + ids.shape[1]), recompute.recomputing(model):
        if tape:
            return llama.outputs(model, prompts, ids, tape, extents)
        with nullcontext() if layers.own else reported(model):
            found = paths[path_of(model, prompts, ids, layers)](model, prompts, ids)
    if at_end and extents is not None and found.shape[1] > 1:
        return found[torch.arange(len(found), device=found.device), extents - 1][:, None]
    return found


def at_tokens(model: Network, prompts: Prompts, ids: Tensor, measure: head.Measure, norms: Tensor | None = None,
              tape: Tape | None = None, beside: tuple[Tensor, ...] = (), extents: Tensor | None = None,
              ) -> tuple[Tensor, ...]:
    """Apply `measure` to the logits that predict each completion token; the results are (B, T) each. Large logits are
    computed and measured in chunks, to save memory. `measure` also gets the tensors `beside` (B, T, ...) at the same
    tokens. `extents` (B,) are the lengths of the completions: results beyond them are undefined.

    The backward pass writes ‖∂L/∂z‖₂ of each token's logits into `norms`, (B, T) float32, if it is given.
    """
    measure = compiled.measure_of(model, measure)
    vocabulary, plain = model.config.vocab_size, head.has_plain_head(model)
    many = ids.numel() * vocabulary > head.MAX_ELEMENTS
    if plain and (many or vocabulary >= WIDE):  # hidden states are unpacked faster than wide logits
        with head.headless(model) as last:
            hidden = completion_outputs(model, prompts, ids, tape, extents)
        if many:
            return head.in_chunks(last, hidden, ids, measure, norms, beside)
        logits = last(hidden)
    else:
        logits = completion_outputs(model, prompts, ids, tape, extents)
    head.watch(logits, norms)
    measured: tuple[Tensor, ...] = measure(logits, ids, *beside)
    return measured


@contextmanager
def precision(model: Network, dtype: str) -> Iterator[None]:
    """The context of a forward pass: where `dtype` is "bf16" the model's weights are in bfloat16 inside.

    They are rounded once on the way in, however many passes follow, and their gradients flow to the float32 weights
    that the optimizer moves. Buffers, such as rotary frequencies, stay as they are; a context within another changes
    nothing.
    """
    if dtype != "bf16" or next(model.parameters()).dtype == torch.bfloat16:
        yield
        return
    weights = [*model.parameters()]  # tied weights are one
    copies = (gpu.rounded(weights, [*fused.room(model).values()]) if weights[0].is_cuda
              else [weight.to(torch.bfloat16) for weight in weights])
    rounded = dict(zip(weights, copies, strict=True))
    with recompute.lent([(holder, name, rounded[weight]) for holder, name, weight in recompute.slots(model)]):
        yield


def _attention(model: Network, tokens: int) -> AbstractContextManager[Any]:
    """On the cpu, in bfloat16, the backward pass of torch's fused attention takes up to eight times the plain one's."""
    weight = next(model.parameters())
    slow = weight.device.type == "cpu" and weight.dtype == torch.bfloat16 and torch.is_grad_enabled()
    again = recompute.marked(model)  # in the backward pass, and so outside of this context
    return sdpa_kernel(SDPBackend.MATH) if slow and tokens <= SHORT and not again else nullcontext()
