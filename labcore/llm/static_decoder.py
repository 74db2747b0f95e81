"""Decoding over buffers that stay where they are: one step of it can be recorded once and replayed for every token.

    columns   0 … start │ start … width │ width … width + limit      prompts stand on the right of the first `width`
    mask      masked    │ as prompted   │ opened one a token

What a step reads (the token before, how many there are, temperature, top-k, top-p) it reads from tensors, and it
writes into tensors; so a step is the same operations on the same addresses at every token and in every batch, and the
host need not wait for any of them. Its draws and log-probs are those of `sampler`; attention sees further columns,
all of them masked, so results differ from the step-by-step path by rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from transformers import DynamicCache, PreTrainedModel, StaticCache
from transformers.cache_utils import StaticLayer

from labcore.llm.batch import Completions, Ends, Prompts, is_end, one_end
from labcore.llm.nets import fused
from labcore.llm.nets.critic import Network
from labcore.llm.nets.forward import prefill, shares_prefixes
from labcore.llm.sampler import SAMPLING, draw
from labcore.maths import gpu
from labcore.runs.spec.activity import report

LOOK_EVERY = 16  # tokens between two looks at whether every row has ended: a look waits for the device
COLUMNS = 32  # the fewest of a kind: sizes are rounded up, so that few shapes occur and attention's masks are aligned


@dataclass(frozen=True)
class Shape:
    """The sizes that a recorded step depends on: the number of prompts, B rows, columns for prompts and for new tokens,
    whether top-k or top-p is used, and whether decoding is greedy."""

    prompts: int
    rows: int
    width: int
    limit: int
    filtered: bool
    greedy: bool

    @staticmethod
    def of(prompts: Prompts, group_size: int, limit: int, top_k: int, top_p: float, greedy: bool) -> Shape:
        """The shape that a batch is decoded in: sizes are rounded up."""
        filtered, count = not greedy and (top_k > 0 or top_p < 1), len(prompts)
        return Shape(count, count * group_size, rounded_width(prompts.ids.shape[1]), -(-limit // COLUMNS) * COLUMNS,
                     filtered, greedy)


def rounded_width(width: int) -> int:
    """The next of 32, 48, 64, 96, 128, 192, 256, …: two in each doubling."""
    size = COLUMNS
    while size < width:
        size = size * 4 // 3 if size % 3 == 0 else size * 3 // 2
    return size


def unfit(model: Network) -> str:
    """The reason why `model` cannot be decoded with buffers of a fixed size; empty if it can."""
    if not isinstance(model, PreTrainedModel) or not shares_prefixes(model):
        return "it has no cache of keys and values"
    config = model.config
    if not model._can_compile_fullgraph:
        return f"a step of {config.model_type} depends on the numbers in it"
    if config._attn_implementation not in ("sdpa", "eager"):
        return f"its attention, {config._attn_implementation}, takes no mask of columns"
    if any(type(layer) is not StaticLayer for layer in StaticCache(config, max_cache_len=1).layers):
        return "not all of its layers attend to the whole text"
    return ""


def keep_top(logprobs: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """`sampler.keep_top` with the two limits in tensors: the same operations whatever they are. (B, V) -> (B, V)"""
    ordered, order = logprobs.sort(-1, descending=True)
    last = torch.where(top_k > 0, top_k - 1, logprobs.shape[-1] - 1).clamp(max=logprobs.shape[-1] - 1)
    smallest = ordered.index_select(-1, last[None])
    ordered = ordered.masked_fill(ordered < smallest, -torch.inf)
    probabilities = ordered.softmax(-1)
    before = probabilities.cumsum(-1) - probabilities
    outside = (before >= top_p) & (top_p < 1)
    return logprobs.masked_fill(outside.scatter(-1, order, outside) | (logprobs < smallest), -torch.inf)


class ModelSteps:
    """Decoding steps by the model's own code with a cache of fixed size, for architectures that `fused.Decoding` does
    not support."""

    def __init__(self, model: Network, shape: Shape):
        weight, columns = next(model.parameters()), shape.width + shape.limit
        self._model, self._shape = model, shape
        self._cache = StaticCache(model.config, max_cache_len=columns)
        self._mask = weight.new_zeros(shape.rows, 1, 1, columns)

    @property
    def nbytes(self) -> int:
        kept = [tensor for layer in self._cache.layers if layer.is_initialized for tensor in (layer.keys, layer.values)]
        return sum(tensor.nbytes for tensor in (*kept, self._mask))

    def take(self, cache: DynamicCache, prompts: Prompts) -> None:
        """Begin with these prompts, whose keys and values are in the cache."""
        width, start = self._shape.width, self._shape.width - prompts.ids.shape[1]
        for layer, prompted in zip(self._cache.layers, cache.layers, strict=True):
            self._copy(layer, prompted.keys, prompted.values, start)
        self._mask.fill_(torch.finfo(self._mask.dtype).min)
        there = prompts.mask.repeat_interleave(self._shape.rows // len(prompts), 0)
        self._mask[:, 0, 0, start:width].masked_fill_(there, 0)

    def leave_out(self, ended: Tensor) -> None:
        """Rows that have ended are computed on."""

    def step(self, ids: Tensor, positions: Tensor, seen: Tensor) -> Tensor:
        """The logits after one more token of each row: `ids` and `positions` are (B,); the cache already holds `seen`
        (1,) tokens. -> (B, V)"""
        self._mask.index_fill_(3, seen + self._shape.width, 0)
        logits: Tensor = self._model(input_ids=ids[:, None], attention_mask=self._mask, position_ids=positions[:, None],
                                     past_key_values=self._cache, use_cache=True).logits
        return logits[:, -1]

    def _copy(self, layer: StaticLayer, keys: Tensor, values: Tensor, start: int) -> None:
        if not layer.is_initialized:  # which looks at sizes only
            layer.lazy_initialization(*(each[:1].expand(self._shape.rows, -1, -1, -1) for each in (keys, values)))
        for buffer, new in ((layer.keys, keys), (layer.values, values)):
            buffer[:, :, start:self._shape.width].unflatten(0, (len(new), -1)).copy_(new[:, None])
        layer.cumulative_length.fill_(self._shape.width)


class StaticDecoder:
    """The buffers of a model and a `Shape`. `begin` fills them and draws the first token, each `step` one more.

    `ids` and `logprobs` (limit, B) hold what was drawn so far; `generator` is drawn from, and is the decoder's own.
    """

    def __init__(self, model: Network, shape: Shape, generator: Generator):
        weight = next(model.parameters())
        self.model, self.shape, self.generator = model, shape, generator
        self.ids = torch.zeros(shape.limit, shape.rows, dtype=torch.long, device=weight.device)
        self.logprobs = torch.zeros(shape.limit, shape.rows, device=weight.device)
        self._steps = (fused.Decoding(model, shape.prompts, shape.rows, shape.width, shape.limit) if fused.fits(model)
                       else ModelSteps(model, shape))
        self._lengths = self.ids.new_zeros(shape.rows)
        self._count, self._seed = self.ids.new_zeros(1), self.ids.new_zeros(1)
        self._temperature, self._top_k = self.logprobs.new_ones(()), self.ids.new_zeros(())
        self._top_p = self.logprobs.new_ones(())

    @property
    def quick(self) -> bool:
        """Whether a step is recorded in no time, and without having been run before."""
        return isinstance(self._steps, fused.Decoding)

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers, nearly all of them keys and values."""
        return self._steps.nbytes + self.ids.nbytes + self.logprobs.nbytes

    def begin(self, prompts: Prompts, temperature: float, top_k: int, top_p: float) -> None:
        """Take P prompts, whose groups fill the rows, and draw the first token of each row."""
        group_size = self.shape.rows // len(prompts)
        logits, cache = prefill(self.model, prompts, 1)
        self._steps.take(cache, prompts)
        self._lengths.copy_(prompts.mask.sum(1).repeat_interleave(group_size))
        for buffer, value in ((self._temperature, temperature), (self._top_k, top_k), (self._top_p, top_p)):
            buffer.fill_(value)
        self._count.zero_()
        self._draw(logits[:, -1].repeat_interleave(group_size, 0))

    def step(self) -> None:
        """Run the model on the last token drawn and draw the next one of each row."""
        seen = self._count - 1
        self._draw(self._steps.step(self.ids.index_select(0, seen)[0], self._lengths + seen, seen))

    def run(self, advance: Callable[[], object], limit: int, eos: Ends) -> Completions:
        """Sample up to `limit` tokens for each row, including the first one, which is sampled already; `advance` makes
        one step."""
        count = 1
        while count < limit and not self._ended(count, eos):
            report(SAMPLING, count, limit)
            for _ in range(min(LOOK_EVERY, limit - count)):
                advance()
            count = min(count + LOOK_EVERY, limit)
        return self._completions(count, eos)

    def _draw(self, logits: Tensor) -> None:
        if gpu.kernels(logits) and not self.shape.filtered:
            seed = self._seed if self.shape.greedy else self._seed.random_(generator=self.generator)
            gpu.choose(logits, self._temperature, seed, self._count, self.ids, self.logprobs, self.shape.greedy)
        else:
            scaled = (logits.float() / self._temperature).log_softmax(-1)
            token = scaled.argmax(-1) if self.shape.greedy else draw(
                keep_top(scaled, self._top_k, self._top_p) if self.shape.filtered else scaled, self.generator)
            self.ids.index_copy_(0, self._count, token[None])
            self.logprobs.index_copy_(0, self._count, scaled.gather(-1, token[:, None]).T)
        self._count += 1

    def _ended(self, count: int, eos: Ends) -> bool:
        ended = is_end(self.ids[:count], eos).any(0)
        self._steps.leave_out(ended)
        return bool(ended.all())

    def _completions(self, count: int, eos: Ends) -> Completions:
        """The completions in the buffers, cut where the longest row ends."""
        ended = is_end(self.ids[:count], eos).T
        mask = ended.cumsum(1) - ended.long() == 0
        length = int(mask.sum(1).max())
        ids, logprobs = (each[:length].T.clone(memory_format=torch.contiguous_format)
                         for each in (self.ids, self.logprobs))
        mask = mask[:, :length].contiguous()
        return Completions(ids.where(mask, one_end(eos)), mask, ~ended.any(1), logprobs.masked_fill(~mask, 0))
