"""Sampling completions, each prompt prefilled once for its whole group.

The sampler returns the log-probability of every token it drew; the trainer reuses them as the old log-probs. With
top-k, top-p, min-p or a penalty for repetitions these are still those of the whole distribution at the sampling
temperature, the one that the trainer's ratio compares with: the filter only chooses among tokens.
"""

from __future__ import annotations

from math import log

import torch
from torch import Tensor

from labcore.llm.batch import Completions, Ends, Prompts, is_end, one_end
from labcore.llm.nets import llama
from labcore.llm.nets.critic import Network
from labcore.llm.nets.forward import attention_mask, extend, positions, prefill, shares_prefixes
from labcore.llm.nets.layer_reports import reported
from labcore.llm.nets.mixture import Mixture, Steps
from labcore.llm.nets.tape import Tape
from labcore.maths import gpu
from labcore.runs.spec.activity import report

SAMPLING = "sampling {} of {} tokens"  # of every completion at once


def keep_top(logprobs: Tensor, top_k: int, top_p: float, min_p: float = 0.0) -> Tensor:
    """log-probs with everything outside the top k, or the top-p nucleus, or below `min_p` times the highest
    probability, at −inf. (B, V) -> (B, V)

    Source: Nguyen et al. 2024, arXiv:2407.01082 (min-p).
    """
    if 0 < top_k < logprobs.shape[-1]:
        smallest = logprobs.topk(top_k, -1).values[:, -1:]
        logprobs = logprobs.masked_fill(logprobs < smallest, -torch.inf)
    if top_p < 1:
        ordered, order = logprobs.sort(-1, descending=True)
        probabilities = ordered.softmax(-1)
        before = probabilities.cumsum(-1) - probabilities
        outside = (before >= top_p).scatter(-1, order, before >= top_p)
        logprobs = logprobs.masked_fill(outside, -torch.inf)
    if min_p > 0:
        logprobs = logprobs.masked_fill(logprobs < logprobs.amax(-1, keepdim=True) + log(min_p), -torch.inf)
    return logprobs


def penalised(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """z/penalty where z > 0, else z · penalty, of the tokens that were `seen`. (B, V), bool (B, V) -> (B, V)

    Source: Keskar et al. 2019, arXiv:1909.05858, section 4.1 (CTRL), with the sign as in transformers and vLLM.
    """
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def _seen(prompts: Prompts, group_size: int, size: int) -> Tensor:
    """The tokens that each row's prompt has. bool (B, V)"""
    seen = torch.zeros(len(prompts), size, dtype=torch.int32, device=prompts.ids.device)
    return seen.scatter_add_(1, prompts.ids, prompts.mask.int()).bool().repeat_interleave(group_size, 0)


def draw(logprobs: Tensor, generator: torch.Generator) -> Tensor:
    """One token a row from unnormalised log-probs, by the exponential race. (B, V) -> (B,)

    argmin E_v / p_v with E_v exponential is a draw from p: no sorting, no cumulative sums. E = −log u, because torch's
    own exponential numbers take the cpu five times as long.
    """
    race = torch.empty_like(logprobs).uniform_(generator=generator).log_().neg_()
    return (logprobs - race.log_()).argmax(-1)


@torch.no_grad()
def sample(model: Network, prompts: Prompts, group_size: int, *, max_new_tokens: int, eos: Ends,
           generator: torch.Generator, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0,
           min_p: float = 0.0, repetition_penalty: float = 1.0, greedy: bool = False,
           tape: Tape | None = None) -> Completions:
    """Sample `group_size` completions of each prompt, until one of the end tokens `eos` or `max_new_tokens`.

    `greedy` takes the likeliest token each time and draws no random number. `tape` is to record the products, of a
    Llama.
    """
    rows = len(prompts) * group_size
    going = prompts.ids.new_ones(rows, dtype=torch.bool)
    ids, masks, logprobs = [], [], []
    step = _steps(model, prompts, group_size, max_new_tokens - 1, tape)
    report(SAMPLING, 0, max_new_tokens)
    logits = next(step)
    seen = None if repetition_penalty == 1 else _seen(prompts, group_size, logits.shape[-1])
    for count in range(max_new_tokens):
        report(SAMPLING, count, max_new_tokens)
        scores = logits if seen is None else penalised(logits, seen, repetition_penalty)
        token, logprob = _chosen(logits, scores, generator, temperature, (top_k, top_p, min_p), greedy)
        token = token.where(going, one_end(eos))  # so that what ended alike stays alike, and packed rows have it once
        if seen is not None:
            seen = seen.scatter(1, token[:, None], True)
        ids.append(token)
        masks.append(going)
        logprobs.append(logprob)
        going = going & ~is_end(token, eos)
        if count + 1 == max_new_tokens or not going.any():
            break
        logits = step.send((token, going))
    mask = torch.stack(masks, 1)
    return Completions(torch.stack(ids, 1), mask, going, torch.stack(logprobs, 1).masked_fill(~mask, 0))


def _chosen(logits: Tensor, scores: Tensor, generator: torch.Generator, temperature: float,
            kept: tuple[int, float, float], greedy: bool) -> tuple[Tensor, Tensor]:
    """A token of each row by its `scores`, which may be penalised `logits`, and its log-prob by `logits`; `kept` are
    top-k, top-p and min-p. (B, V), (B, V) -> (B,), (B,)"""
    top_k, top_p, min_p = kept
    whole = top_k <= 0 and top_p >= 1 and min_p <= 0
    if gpu.kernels(logits) and scores is logits and (greedy or whole):  # as `StaticDecoder` draws it
        ids, seed = torch.zeros(1, len(logits), dtype=torch.long, device=logits.device), logits.new_zeros(1).long()
        logprobs = torch.zeros_like(ids, dtype=torch.float32)
        if not greedy:
            seed.random_(generator=generator)
        gpu.choose(logits, logprobs.new_tensor(temperature), seed, torch.zeros_like(seed), ids, logprobs, greedy)
        return ids[0], logprobs[0]
    scaled = (logits if temperature == 1 else logits.float() / temperature).log_softmax(-1, torch.float32)
    by = scaled if scores is logits else (scores.float() / temperature).log_softmax(-1)
    token = by.argmax(-1) if greedy else draw(keep_top(by, top_k, top_p, min_p), generator)
    return token, scaled.gather(-1, token[:, None])[:, 0]


def _steps(model: Network, prompts: Prompts, group_size: int, most: int,
           tape: Tape | None = None) -> Steps:
    """Coroutine: yields the next token's logits (B, V); is sent, at most `most` times, the token chosen (B,) and
    whether the completion continues (B,). The logits of a completion that has ended have no meaning."""
    if isinstance(model, Mixture):
        return model.steps(*(_steps(each, prompts, group_size, most) for each in (model.first, model.second)))
    if llama.supported(model):
        return llama.steps(model, prompts, group_size, most, tape)
    return (_cached_steps if shares_prefixes(model) else _whole_steps)(model, prompts, group_size)


def _cached_steps(model: Network, prompts: Prompts, group_size: int) -> Steps:
    """The next-token logits of a model with a key-value cache, as a coroutine."""
    with reported(model):  # many long prompts take long
        logits, cache = prefill(model, prompts, group_size)
    prompt_mask = prompts.mask.repeat_interleave(group_size, 0)
    seen = 0
    while True:
        token, _ = yield logits[:, -1]
        logits = extend(model, token[:, None], prompt_mask, seen, cache)
        seen += 1


def _whole_steps(model: Network, prompts: Prompts, group_size: int) -> Steps:
    """The next-token logits of a model without a key-value cache, as a coroutine: each token runs the whole row."""
    ids = prompts.ids.repeat_interleave(group_size, 0)
    mask = prompts.mask.repeat_interleave(group_size, 0)
    while True:
        token, _ = yield model(input_ids=ids, attention_mask=attention_mask(mask), position_ids=positions(mask),
                               use_cache=False, logits_to_keep=1).logits[:, -1]
        ids = torch.cat([ids, token[:, None]], 1)
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
