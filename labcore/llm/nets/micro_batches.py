"""A batch cut into parts that fit into memory, and cut finer once memory turned out to be short.

How a batch is cut changes no gradient but for rounding, and depends on the spec and on a GPU's memory alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import torch
from torch import Tensor, nn

from labcore.llm.batch import Prompts
from labcore.llm.nets import head, recompute
from labcore.llm.nets.critic import Network
from labcore.llm.nets.forward import layers_of, mode_of
from labcore.llm.sizing import passes
from labcore.runs.spec.activity import report
from labcore.runs.spec.run_spec import RunSpec

Given = ParamSpec("Given")
Result = TypeVar("Result")
Holder = TypeVar("Holder", bound="Halves")


@dataclass(frozen=True)
class Room:
    """The memory that a micro-batch may take: `size` bytes for activations of `width` bytes a number. What fits is
    halved `halvings` times."""

    size: int = passes.ON_PROCESSOR
    width: int = passes.FULL
    halvings: int = 0


@dataclass
class Cut:
    """The number of times that a run's micro-batches were halved."""

    halvings: int = 0


WHOLE = Room()


def micro_batches(model: Network, prompts: Prompts, ids: Tensor, room: Room = WHOLE) -> Iterator[tuple[slice, slice]]:
    """Cut P prompts with completions `ids` (P·G, T) into parts whose activations fit into `room`.

    Yields the slice of prompts and the slice of rows of each part; groups stay whole. Each part is reported.
    """
    count, group = len(prompts), len(ids) // len(prompts)
    part = at_once(model, passes.Batch(count, group, 0, prompts.ids.shape[1], ids.shape[1]), room)
    for start in range(0, count, part):
        stop = min(start + part, count)
        report("{} of {} prompts", start, count)
        yield slice(start, stop), slice(start * group, stop * group)


def at_once(model: Network, done: passes.Batch, room: Room) -> int:
    """The number of prompts of `done` in a micro-batch."""
    mode = replace(mode_of(model), width=room.width)
    return max(1, min(done.prompts, passes.prompts_at_once(layers_of(model), done, mode, room.size)) >> room.halvings)


def room_of(models: Iterable[nn.Module], learning: Iterable[nn.Module], spec: RunSpec, halvings: int = 0) -> Room:
    """The memory that a micro-batch may take in a run that holds `models`, of which some are learning."""
    models = list(models)
    device = next(models[0].parameters()).device
    width = passes.HALF if spec.knobs["dtype"] == "bf16" else passes.FULL
    seen = {id(weight): weight.numel() for model in models for _, _, weight in recompute.slots(model)}
    moved = {id(weight): weight.numel() for model in learning for _, _, weight in recompute.slots(model)
             if weight.requires_grad}
    mode, optimizer = passes.Mode(device.type, width), str(spec.knobs.get("optimizer"))
    there = passes.of_run(sum(seen.values()), sum(moved.values()), spec.row.loop, mode, optimizer)
    total = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None
    card = total and passes.of_card(total, spec.knobs)
    return Room(passes.room(head.MAX_ELEMENTS, mode, card, there), width, halvings)


class Halves(Protocol):
    """A session that can cut its micro-batches in two."""

    def halve_micro_batches(self) -> None: ...


class Attempt:
    """A `with` block that the device's memory may be too short for: it then breaks off, and has `failed`."""

    failed = False

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        self.failed = isinstance(error, torch.OutOfMemoryError)
        return self.failed


def attempts(session: Halves) -> Iterator[AbstractContextManager[None, bool | None]]:
    """`for attempt in attempts(session): with attempt: ...` runs the block once more, with micro-batches of half the
    size, where the device's memory is out. These stay half as large for the rest of the run.

    What a failed attempt held must be in functions that the block calls: it is free only once they have ended.
    """
    first = Attempt()
    yield first
    if first.failed:
        session.halve_micro_batches()
        yield nullcontext()


def retried(run: Callable[Concatenate[Holder, Given], Result]) -> Callable[Concatenate[Holder, Given], Result]:
    """`run` of a session with `attempts`."""
    @wraps(run)
    def attempted(session: Holder, /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        for attempt in attempts(session):
            with attempt:
                result = run(session, *args, **kwargs)
        return result
    return attempted
