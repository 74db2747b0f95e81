"""What is asked of a device that can record a step and replay it, and CUDA graphs, which do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Protocol

import torch

from labcore.llm.static_decoder import StaticDecoder


class Recording(Protocol):
    """A recorded step."""

    def replay(self) -> None:
        """Do it again, on what is in the decoder's buffers by now."""

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
        """Give back what a failed recording took. `ended`: the device was well, and torch ended it in good order."""
        if ended:
            graph.reset()
            return
        # torch leaves the recording begun for its allocator, which then gives nothing back: `empty_cache` raises, and
        # so does every later recording.
        self._broken.append(graph)
        with suppress(RuntimeError):  # it failed before it was begun there, or after it was ended
            torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
            torch._C._cuda_releasePool(torch.cuda.current_device(), pool)
