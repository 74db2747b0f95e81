"""The memory of a run: the size of its micro-batches, retries when memory is short, and the limit on a shared GPU."""

from __future__ import annotations

import torch

from labcore.llm.freed_memory import keep_freed
from labcore.llm.nets.micro_batches import Room, room_of
from labcore.llm.sizing import passes
from labcore.llm.state import State
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.spec.vllm import by_vllm


def prepare(device: torch.device, spec: RunSpec) -> None:
    """Set up the memory of this process for a run."""
    keep_freed()
    limit(device, spec)


def limit(device: torch.device, spec: RunSpec) -> None:
    """Limit torch to the run's share of the GPU's memory: larger allocations fail as out of memory. There is no limit
    with vLLM, which reserves a share of its own."""
    if device.type == "cuda" and not by_vllm(spec.knobs):
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(passes.of_card(total, spec.knobs) / total)


def room(session: State) -> Room:
    """The memory that a micro-batch may take."""
    moved = [session.models[name] for name in session.optimizers]
    return room_of(session.models.values(), moved, session.spec, session.halvings)


def halve_micro_batches(session: State) -> None:
    """From now on cut batches into parts of half the size, and drop the gradients that half an update left."""
    session.halvings += 1
    session.say_once(f"The device's memory was short: micro-batches have 1/{2**session.halvings} of the prompts that "
                     "were planned, at least one.")
    for model in session.models.values():
        model.zero_grad(set_to_none=True)
    if session.graphs:
        session.graphs.make_room()
    if session.device.type == "cuda":
        torch.cuda.empty_cache()
