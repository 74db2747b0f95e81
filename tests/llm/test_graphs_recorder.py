"""What `CudaRecorder` does where a recording fails, on a stand-in for CUDA's calls: what a failure holds is given back.

That the calls are CUDA's own is what `tests/cuda/test_decoding.py` says.
"""

import gc
import weakref
from contextlib import nullcontext, suppress

import pytest
import torch

from labcore.llm.graphs import CudaRecorder


class FakeGraph:
    """A CUDA graph, as far as a recording asks for it."""

    def __init__(self):
        self.resets = 0

    def register_generator_state(self, generator):
        pass

    def pool(self):
        return 1, 0

    def reset(self):
        self.resets += 1


class Decoder:
    """Its step fails as it is told."""

    generator = None

    def __init__(self, kind, text):
        self._kind, self._text = kind, text

    def step(self):
        raise self._kind(self._text)


class Recording:
    """A class as torch's is: a generator's frame would hold the error in a circle on Python 3.13."""

    def __init__(self, invalid):
        self._invalid = invalid

    def __enter__(self):
        pass

    def __exit__(self, *error):
        if self._invalid:
            raise RuntimeError("operation failed due to a previous error during capture")


class Cuda:
    """`made` are the graphs, `told` what the allocator was told. A recording that is `invalid` cannot be ended."""

    def __init__(self, monkeypatch):
        self.made, self.told, self.invalid = [], [], False
        for name, value in {"CUDAGraph": self._graph, "graph": self._recording, "Stream": object,
                            "stream": lambda stream: nullcontext(), "current_stream": object,
                            "current_device": lambda: 0, "graph_pool_handle": lambda: (0, 7)}.items():
            monkeypatch.setattr(torch.cuda, name, value)
        for name in ("_cuda_endAllocateToPool", "_cuda_releasePool"):
            monkeypatch.setattr(torch._C, name, lambda *given, name=name: self._tell(name, *given), raising=False)

    @property
    def _graph(self):
        cuda = self

        class Made(FakeGraph):
            def __init__(self):
                super().__init__()
                cuda.made.append(self)
        return Made

    def _tell(self, name, *given):
        self.told.append((name, *given))

    def _recording(self, graph, pool, stream, capture_error_mode):
        return Recording(self.invalid)


@pytest.fixture
def cuda(monkeypatch):
    return Cuda(monkeypatch)


def test_a_recording_that_broke_off_is_ended_for_the_allocator(cuda):
    """Else `torch.cuda.empty_cache` raises from then on, and every later recording fails."""
    recorder, cuda.invalid = CudaRecorder(), True
    with pytest.raises(RuntimeError, match="not permitted"):
        recorder.record(Decoder(RuntimeError, "operation not permitted when stream is capturing"), None)
    assert cuda.told == [("_cuda_endAllocateToPool", 0, (0, 7)), ("_cuda_releasePool", 0, (0, 7))]
    graph, = cuda.made
    assert recorder._broken == [graph] and not graph.resets


def test_where_memory_is_out_in_a_recording_its_graph_is_freed(cuda):
    recorder = CudaRecorder()
    with pytest.raises(torch.OutOfMemoryError):
        recorder.record(Decoder(torch.OutOfMemoryError, "CUDA out of memory"), None)
    graph, = cuda.made
    assert graph.resets == 1 and not recorder._broken and not cuda.told


@pytest.mark.parametrize("invalid", [False, True])
def test_a_failure_does_not_hold_the_decoder(cuda, invalid):
    """Its buffers are gigabytes, and the next attempt needs them at once: no waiting for the garbage collector."""
    recorder, cuda.invalid = CudaRecorder(), invalid
    decoder = Decoder(torch.OutOfMemoryError, "CUDA out of memory")
    alive = weakref.ref(decoder)
    gc.disable()
    try:
        with suppress(torch.OutOfMemoryError):
            recorder.record(decoder, None)
        del decoder
        assert alive() is None
    finally:
        gc.enable()


def test_after_an_error_the_stream_still_waits_for_the_steps_beside_it(cuda, monkeypatch):
    class Stream:
        def __init__(self):
            self.waited_for = []

        def wait_stream(self, other):
            self.waited_for.append(other)
    current = Stream()
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: current)
    recorder = CudaRecorder()
    with pytest.raises(torch.OutOfMemoryError), recorder.aside():
        assert recorder._stream.waited_for == [current]
        raise torch.OutOfMemoryError("CUDA out of memory")
    assert current.waited_for == [recorder._stream]
