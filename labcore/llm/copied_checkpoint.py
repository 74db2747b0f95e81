"""Copy what a run would save at a record into memory, so that its checkpoint can be written later.

Saving takes long where the disk is slow, so the worker bounds the time it takes. A policy that is the best so far on
held-out rows must not be lost all the same: it waits in memory until a checkpoint is due.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from labcore import machine
from labcore.llm.checkpoint import write
from labcore.llm.state import SmallState, State

LEFT_FREE = 2  # the copy takes at most 1/2 of the memory that is free
Moments = dict[Tensor, dict[str, Any]]


def copied_checkpoint(session: State) -> Callable[[Path], None] | None:
    """A function that writes the checkpoint of `session` as it is now into an empty folder, whenever it is called.
    None where memory is short.

    What an optimizer moves is copied: weights and moments, to the processor's memory. All else stands still.
    """
    weights = [weight for optimizer in session.optimizers.values() for group in optimizer.param_groups
               for weight in group["params"]]
    size = sum(tensor.nbytes for tensor in (*weights, *_moments_in(session)))
    if size * LEFT_FREE > (machine.free_memory("cpu") or 0):
        return None
    small, knobs = SmallState.of(session).copied(), dict(session.knobs)
    values = [_copied(weight.detach()) for weight in weights]
    moments = {name: {weight: {key: _copied(value) for key, value in state.items()}
                      for weight, state in optimizer.state.items()} for name, optimizer in session.optimizers.items()}

    def save(folder: Path) -> None:
        with _as_it_was(session, small, knobs, weights, values, moments):
            write(session, folder)
    return save


@contextmanager
def _as_it_was(session: State, small: SmallState, knobs: dict[str, Any], weights: list[nn.Parameter],
               values: list[Tensor], moments: dict[str, Moments]) -> Iterator[None]:
    """Within it the session has the copies; nothing but pointers moves."""
    now, knobs_now, data = SmallState.of(session), session.knobs, [weight.data for weight in weights]
    states = {name: optimizer.state for name, optimizer in session.optimizers.items()}
    _point(weights, values)
    for name, state in moments.items():
        session.optimizers[name].state = defaultdict(dict, state)
    session.knobs = knobs
    small.put(session)
    try:
        yield
    finally:
        now.put(session)
        session.knobs = knobs_now
        for name, before in states.items():
            session.optimizers[name].state = before
        _point(weights, data)


def _point(weights: list[nn.Parameter], values: list[Tensor]) -> None:
    for weight, value in zip(weights, values, strict=True):
        weight.data = value


def _moments_in(session: State) -> list[Tensor]:
    return [value for optimizer in session.optimizers.values() for state in optimizer.state.values()
            for value in state.values() if isinstance(value, Tensor)]


def _copied(value: Any) -> Any:
    return value.to("cpu", copy=True) if isinstance(value, torch.Tensor) else value
