"""A device that records and replays, in the place of CUDA's graphs: it holds a replayed step to what a graph can do."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from labcore.llm.static_decoder import StaticDecoder

# The host would wait for the device, or a constant would be sent to it: a graph can hold neither.
FORBIDDEN = {"aten._local_scalar_dense.default", "aten.item.default", "aten.is_nonzero.default", "aten.nonzero.default",
             "aten.masked_select.default", "aten.lift_fresh.default", "aten.lift_fresh_copy.default"}


class Tape(TorchDispatchMode):
    """Every operation of a step: its name, the shapes and numbers it is called with, and the addresses of the tensors
    that were there before the step."""

    def __init__(self):
        super().__init__()
        self.operations: list[tuple] = []
        self._made: dict[int, Tensor] = {}  # held, so that no address is used twice

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert str(func) not in FORBIDDEN, f"{func} cannot be recorded"
        given = tree_leaves((args, kwargs or {}))
        self.operations.append((str(func), *(self._seen(each) for each in given)))
        results = func(*args, **(kwargs or {}))
        before = {address(each) for each in given if isinstance(each, Tensor)}
        for each in tree_leaves(results):
            if isinstance(each, Tensor) and address(each) not in before:
                self._made[address(each)] = each
        return results

    def _seen(self, value):
        if not isinstance(value, Tensor):
            return value
        return tuple(value.shape), value.dtype, "made" if address(value) in self._made else value.data_ptr()


def address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def taped(decoder: StaticDecoder) -> list[tuple]:
    """One step, and what it did."""
    with Tape() as tape:
        decoder.step()
    return tape.operations


class TapeRecording:
    """Replays a step by running it; each time it must be what it was at the first."""

    def __init__(self, decoder: StaticDecoder):
        self.decoder, self.operations, self.replays, self.freed = decoder, None, 0, False

    def replay(self) -> None:
        assert not self.freed
        operations = taped(self.decoder)
        self.operations = self.operations or operations
        assert operations == self.operations
        self.replays += 1

    def reset(self) -> None:
        assert not self.freed
        self.freed = True


class TapeRecorder:
    """`made` are its recordings in order; `failing` are errors that the next ones end with."""

    def __init__(self, recording=TapeRecording):
        self.made: list[TapeRecording] = []
        self.failing: list[Exception] = []
        self._recording = recording

    @property
    def alive(self) -> list[TapeRecording]:
        return [each for each in self.made if not each.freed]

    @contextmanager
    def aside(self) -> Iterator[None]:
        yield

    def record(self, decoder, beside):
        assert beside in (None, *self.alive)
        assert torch.is_inference_mode_enabled() or not torch.is_grad_enabled()
        if self.failing:
            raise self.failing.pop(0)
        self.made.append(self._recording(decoder))
        return self.made[-1]
