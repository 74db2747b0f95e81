"""Decoding on a GPU by replaying a recorded step, so that a token costs one launch and not hundreds of them.

A step of `StaticDecoder` is recorded once for each model and shape and replayed for every further token. Recordings are
kept between batches, and freed if they need too much memory or have not been used for long. The results of a run do not
depend on the kept recordings: batches of the same shape are decoded by the same step, with the random numbers of the
run's generator, whose state a decoder copies in and back.

A recording is only used if its first tokens equal those of the unrecorded step and their log-probs those of the model's
plain forward pass. If no recording is possible, `Graphs.sample` returns None and `notes` has the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Generator, Tensor, nn

from labcore.llm.batch import Completions, Ends, Prompts, is_end
from labcore.llm.nets import fused, recompute
from labcore.llm.nets.critic import Network
from labcore.llm.nets.forward import plain
from labcore.llm.static_decoder import Shape, StaticDecoder, unfit
from labcore.maths.logprobs import selective_log_softmax

# ---------------------------------------------------------------- fixed weights
# A model's weights at addresses that do not change, which a recorded step reads.


class FixedWeights:
    """The weights at fixed addresses: the parameters themselves, which the optimizer, checkpoints and probes change in
    place, or, if `dtype` is "bf16", copies that are rounded again for each batch (`forward.precision` would make new
    tensors at every pass)."""

    def __init__(self, model: Network, dtype: str):
        self._places = _places(model)
        self._rounded: dict[Tensor, Tensor] = fused.room(model) if dtype == "bf16" else {}

    @property
    def nbytes(self) -> int:
        """Bytes of the copies."""
        return sum(copy.nbytes for copy in self._rounded.values())

    def fit(self, model: Network) -> bool:
        """True if the model's weights are still the same tensors at the same addresses."""
        return self._places == _places(model)

    @torch.no_grad()
    def of_now(self, model: Network) -> AbstractContextManager[None]:
        """The context of a batch: inside, `model` computes with the copies of its weights as they are now."""
        for weight, copy in self._rounded.items():
            copy.copy_(weight)
        return recompute.lent([(holder, name, self._rounded[weight]) for holder, name, weight in recompute.slots(model)]
                              if self._rounded else [])


def _places(model: Network) -> list[tuple[int, int]]:
    return [(id(weight), weight.data_ptr()) for weight in model.parameters()]


# ---------------------------------------------------------------- recorder
# What is asked of a device that can record a step and replay it, and CUDA graphs, which do.

class Recording(Protocol):
    """A recorded step."""

    def replay(self) -> None:
        """Replay the recording on the present content of the decoder's buffers."""

    def reset(self) -> None:
        """Free its memory."""


class Recorder(Protocol):
    """A device that records."""

    def aside(self) -> AbstractContextManager[None]:
        """Where steps are run before one is recorded."""
        ...

    def record(self, decoder: StaticDecoder, beside: Recording | None) -> Recording:
        """Record a step of `decoder` without running it, in the memory of another recording where there is one."""
        ...


class CudaRecorder:
    """CUDA graphs. Their passing tensors may share memory: nothing but the decoder's buffers outlives a step."""

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()  # one for all: libraries keep a workspace for each stream
        self._broken: list[torch.cuda.CUDAGraph] = []  # torch may go on asking them: they must not be freed

    @contextmanager
    def aside(self) -> Iterator[None]:
        """On the stream of the recording: in the first steps there libraries allocate and choose their kernels."""
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        try:
            with torch.cuda.stream(self._stream):
                yield
        finally:  # after an error too: the memory that these steps write to is free for others then
            current.wait_stream(self._stream)

    def record(self, decoder: StaticDecoder, beside: Recording | None) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(decoder.generator)  # each replay draws on from where the generator stands
        pool = beside.pool() if isinstance(beside, torch.cuda.CUDAGraph) else torch.cuda.graph_pool_handle()
        broken: Exception | None = None
        try:
            # A recording that fails leaves its own stream current: the outer context puts this one back.
            with (torch.cuda.stream(torch.cuda.current_stream()),
                  torch.cuda.graph(graph, pool, self._stream, capture_error_mode="thread_local")):
                try:
                    decoder.step()
                except Exception as error:
                    broken = error
                    raise
            return graph
        except Exception as error:  # that of the recording says that it was broken off: what did so says more
            self._undo(graph, pool, ended=error is broken)
            broken = broken or error
        try:
            raise broken
        finally:
            del broken  # or the error and this frame hold each other, and with them the decoder's memory

    def _undo(self, graph: torch.cuda.CUDAGraph, pool: Any, ended: bool) -> None:
        """Free the memory of a failed recording. `ended`: without an error of the device, torch ended it itself."""
        if ended:
            graph.reset()
            return
        # torch leaves the recording begun for its allocator, which then gives nothing back: `empty_cache` raises, and
        # so does every later recording.
        self._broken.append(graph)
        with suppress(RuntimeError):  # it failed before it was begun there, or after it was ended
            torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
            torch._C._cuda_releasePool(torch.cuda.current_device(), pool)


# ---------------------------------------------------------------- graphs

KEPT = 2**30  # bytes that recordings keep from batch to batch: to record again takes some 20 ms, of seconds of a step
IDLE = 32  # batches after which a recording is freed that none of them used: a knob has changed the shape
WARM_UP = 3  # steps before one is recorded
ALIKE = 0.9  # of the rows draw the same first tokens: rounding may turn a draw
TOLERANCE = {"fp32": 0.01, "bf16": 0.2}  # nats at temperature 1, mean of the first tokens; a wrong step is off by more


def of_device(device: torch.device) -> Graphs | None:
    """The recordings of a new run; None where steps cannot be recorded."""
    return Graphs(CudaRecorder(), KEPT) if device.type == "cuda" else None


@dataclass(frozen=True)
class _Batch:
    """A batch to decode: the model, its prompts and the settings of sampling."""

    model: Network
    dtype: str
    shape: Shape
    prompts: Prompts
    generator: Generator
    temperature: float
    top_k: int
    top_p: float

    def begin(self, decoder: StaticDecoder) -> None:
        decoder.generator.set_state(self.generator.get_state())
        decoder.begin(self.prompts, self.temperature, self.top_k, self.top_p)


@dataclass
class _Kept:
    """A decoder and its recorded step; `used` is the number of the batch that used it last."""

    decoder: StaticDecoder
    weights: FixedWeights
    recording: Recording
    used: int = 0


class _Untrue(Exception):
    """A recorded step differs from the model's own; the message says where."""


class Graphs:
    """The recordings of a run. `budget`: bytes that they may keep from batch to batch. `notes`: sentences not yet taken
    on why a model decodes step by step; none is said twice."""

    def __init__(self, recorder: Recorder, budget: int):
        self.notes: list[str] = []
        self._noted: set[str] = set()
        self._recorder, self._budget, self._batches, self._short = recorder, budget, 0, False
        self._kept: dict[tuple[int, str, Shape], _Kept] = {}  # by the model's id, which is kept with its decoder
        self._stepwise: WeakKeyDictionary[nn.Module, set[Shape | None]] = WeakKeyDictionary()  # None: in any shape
        self._proven: WeakKeyDictionary[nn.Module, set[tuple[str, Shape]]] = WeakKeyDictionary()

    @torch.no_grad()
    def sample(self, model: Network, prompts: Prompts, group_size: int, *, dtype: str, max_new_tokens: int,
               eos: Ends, generator: Generator, temperature: float, top_k: int, top_p: float,
               greedy: bool, min_p: float = 0.0, repetition_penalty: float = 1.0) -> Completions | None:
        """The result of `sampler.sample`, drawn by a recorded step; None where the batch must be drawn step by step, as
        with the two filters that no step is recorded with."""
        if model not in self._stepwise:
            self._stepwise[model], self._proven[model] = set(), set()
            if reason := unfit(model):
                self._give_up(model, None, reason)
        shape = Shape.of(prompts, group_size, max_new_tokens, top_k, top_p, greedy)
        if min_p > 0 or repetition_penalty != 1 or max_new_tokens == 1 or {None, shape} & self._stepwise[model]:
            return None
        batch = _Batch(model, dtype, shape, prompts, generator, temperature, top_k, top_p)
        for _ in range(2):
            try:
                return self._decode(batch, max_new_tokens, eos)
            except torch.OutOfMemoryError:
                self.make_room()
            except Exception as error:  # whatever keeps a step from being recorded, the model can do without
                self._give_up(model, None, _said(error))
                return None
        self._give_up(model, shape, "the GPU has too little memory for its buffers")
        return None

    def take_notes(self) -> list[str]:
        """The sentences since it was last asked."""
        taken, self.notes = self.notes, []
        return taken

    def free(self) -> None:
        """Free all recordings; the next batch is recorded again."""
        self._drop([*self._kept])

    def make_room(self) -> None:
        """Free all recordings, and from now on keep half as much: memory was short."""
        self.free()
        self._budget, self._short = self._budget // 2, True

    @property
    def nbytes(self) -> int:
        """Bytes that are kept between steps, without the temporary tensors of one step."""
        weights = {id(kept.weights): kept.weights.nbytes for kept in self._kept.values()}
        return sum(kept.decoder.nbytes for kept in self._kept.values()) + sum(weights.values())

    def _decode(self, batch: _Batch, limit: int, eos: Ends) -> Completions:
        key, model = (id(batch.model), batch.dtype, batch.shape), batch.model
        self._drop([each for each, kept in self._of(batch) if not kept.weights.fit(model)])
        weights = next((kept.weights for _, kept in self._of(batch)), None) or FixedWeights(model, batch.dtype)
        with weights.of_now(model):
            kept = self._kept.get(key)
            if kept is None:
                kept, completions = self._recorded(batch, weights, limit, eos)
                self._kept[key] = kept
            else:
                batch.begin(kept.decoder)
                completions = kept.decoder.run(kept.recording.replay, limit, eos)
        batch.generator.set_state(kept.decoder.generator.get_state())
        self._batches += 1
        kept.used = self._batches
        self._tidy()
        return completions

    def _recorded(self, batch: _Batch, weights: FixedWeights, limit: int, eos: Ends) -> tuple[_Kept, Completions]:
        """A new recording that has passed its check, on this or an earlier batch, and the completions of this one."""
        decoder = StaticDecoder(batch.model, batch.shape, Generator(batch.generator.device))
        first = None if self._is_proven(batch, decoder) else self._first(batch, decoder, limit)
        beside = next((kept.recording for kept in self._kept.values()), None)
        recording = self._recorder.record(decoder, beside)
        try:
            batch.begin(decoder)
            completions = decoder.run(recording.replay, limit, eos)
            if first is not None:
                _check(decoder, batch, first, eos)
                self._proven[batch.model].add((batch.dtype, batch.shape))
        except BaseException:
            recording.reset()
            raise
        return _Kept(decoder, weights, recording), completions

    def _first(self, batch: _Batch, decoder: StaticDecoder, limit: int) -> Tensor:
        """The first tokens that the step itself draws, (N, B), where it is to be recorded."""
        batch.begin(decoder)
        steps = min(WARM_UP, limit - 1)
        with self._recorder.aside():
            for _ in range(steps):
                decoder.step()
        return decoder.ids[:steps + 1].clone()

    def _is_proven(self, batch: _Batch, decoder: StaticDecoder) -> bool:
        """Whether the same step was recorded before, and can be again without being run first."""
        return decoder.quick and (batch.dtype, batch.shape) in self._proven[batch.model]

    def _of(self, batch: _Batch) -> Iterator[tuple[tuple[int, str, Shape], _Kept]]:
        """The recordings of the batch's model in its precision."""
        yield from [item for item in self._kept.items() if item[0][:2] == (id(batch.model), batch.dtype)]

    def _tidy(self) -> None:
        self._drop([key for key, kept in self._kept.items() if self._batches - kept.used > IDLE])
        by_use = sorted(self._kept, key=lambda key: self._kept[key].used)
        while self.nbytes > self._budget and by_use and (
                len(by_use) > 1 or self._short or self._kept[by_use[0]].decoder.quick):
            self._drop([by_use.pop(0)])

    def _drop(self, keys: list[tuple[int, str, Shape]]) -> None:
        for key in keys:
            self._kept.pop(key).recording.reset()

    def _give_up(self, model: Network, shape: Shape | None, reason: str) -> None:
        self._stepwise[model].add(shape)
        self._drop([key for key in self._kept if key[0] == id(model) and shape in (None, key[2])])
        if reason not in self._noted:
            self._noted.add(reason)
            self.notes.append(f"This model decodes step by step, not by a CUDA graph: {reason}.")


def _check(decoder: StaticDecoder, batch: _Batch, first: Tensor, eos: Ends) -> None:
    """Compare a recording with the model, in one row of each group up to the row's end: its tokens with `first` (N, B),
    the tokens of the unrecorded step, and its log-probs with those of the plain forward pass. Raises _Untrue."""
    count, prompts = len(first), len(batch.prompts)
    ends = is_end(first, eos)
    after = ends.cumsum(0) > ends.long()
    if ((decoder.ids[:count] == first) | after).all(0).float().mean() < ALIKE:
        raise _Untrue("the graph draws other tokens than the model")
    group_size, prompt = batch.shape.rows // prompts, torch.arange(prompts, device=first.device)
    rows = prompt * group_size + prompt % group_size
    ids = decoder.ids[:count, rows].T
    expected = selective_log_softmax(plain(batch.model, batch.prompts, ids), ids, batch.temperature)
    gap = float((decoder.logprobs[:count, rows].T - expected).abs()[~after[:, rows].T].mean()) * batch.temperature
    if not gap <= TOLERANCE[batch.dtype]:
        raise _Untrue(f"the graph's log-probs are {gap:.2g} nats off the model's")


def _said(error: Exception) -> str:
    if isinstance(error, _Untrue):
        return str(error)
    line = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".:")
    return f"it could not be recorded ({line})"
