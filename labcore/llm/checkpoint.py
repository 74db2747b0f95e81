"""Write and read the checkpoints of a language model's run: safetensors and JSON only.

    policy/                       the policy in the Hugging Face format, or with LoRA its adapter
    NAME.safetensors              every other network of the checkpoint; with LoRA without the frozen weights
    scorer/, scorer_2/ …          the reward models that give the rewards
    optimizer_NAME.safetensors    the moments of each trained network; empty if they were dropped
    generator.safetensors         the state of the random generator that samples
    queue.safetensors             sampled completions that wait for an update or may be replayed, if there are any
    state.json                    counters, knobs, pairs, learnt numbers outside the networks, other random generators
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from labcore import machine
from labcore.device import resume_generator
from labcore.errors import LabError
from labcore.llm import optimizers, stored_objects
from labcore.llm.nets import lora
from labcore.llm.nets.critic import Critic
from labcore.llm.nets.lora import Lora
from labcore.llm.nets.model import load
from labcore.llm.nets.scorer import save_scorer
from labcore.llm.networks import POLICY, SCORER
from labcore.llm.state import LEARNT, PAIRS, QUEUES, SmallState, State
from labcore.runs.files.checkpoints import is_dropped
from labcore.runs.files.untrusted import json_of, whole
from labcore.tasks.task import Pair, Turn

ELSEWHERE = 2**32 + 6  # a tag that no step has, nor a probe: see `probes.answer`


def write(session: State, folder: Path) -> None:
    """Write a complete checkpoint into `folder`."""
    session.export(folder / POLICY)
    adapted = lora.adapted(session.policy)
    for name, model in session.saved_networks().items():
        save_file(_plain(lora.own(model) if adapted else model.state_dict()), folder / f"{name}.safetensors")
    for place, scorer in enumerate(cast(Iterable[nn.Module], session.models.get(SCORER, ()))):
        if isinstance(scorer, Critic):  # a published one stays in its folder
            save_scorer(scorer, folder / scorer_folder(place))
    for name, optimizer in session.optimizers.items():
        save_file({key: value.contiguous() for key, value in optimizers.tensors_of(optimizer).items()},
                  folder / f"optimizer_{name}.safetensors")
    save_file({"generator": session.generator.get_state()}, folder / "generator.safetensors")
    state = {"step": session.step, "updates": session.updates, "tokens": session.tokens, "knobs": session.knobs,
             "rng": session.rng.bit_generator.state, "prompt_seed": session.prompt_seed,
             **{name: [vars(pair) for pair in getattr(session, name)] for name in PAIRS},
             **{name: getattr(session, name) for name in LEARNT},
             "finished_because": session.finished_because}
    tensors, waiting = stored_objects.packed({name: getattr(session, name) for name in QUEUES})
    if tensors:
        save_file(tensors, folder / "queue.safetensors")
        state["queues"] = waiting
    (folder / "state.json").write_text(whole(json.dumps(state, ensure_ascii=False)), encoding="utf-8")


def read(session: State, folder: Path) -> None:
    """Continue from the checkpoint in `folder`: change the session in place. The session read its reward models when it
    started. Raises LabError if a file is missing or damaged, or does not fit the session."""
    try:
        _read(session, folder)
    except torch.OutOfMemoryError:  # a RuntimeError that is not the checkpoint's fault
        raise
    except (LabError, SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".:")
        raise LabError(f"The checkpoint {folder.name} cannot be read ({reason}): resume from an earlier one, or "
                       "start the run again.") from error


def scorer_folder(place: int) -> str:
    """The folder, within a checkpoint, of the reward model at that place."""
    return SCORER if place == 0 else f"{SCORER}_{place + 1}"


def _read(session: State, folder: Path) -> None:
    def tensors(name: str) -> dict[str, Tensor]:
        return load_file(folder / f"{name}.safetensors", device=str(session.device))

    state = json_of((folder / "state.json").read_bytes(), constants=True)
    _read_policy(session.policy, folder / POLICY)
    for name, model in session.saved_networks().items():
        _read_network(session, name, model, tensors(name))
    for name, optimizer in session.optimizers.items():
        optimizers.load(optimizer, tensors(f"optimizer_{name}"))
    if is_dropped(folder):
        session.notes.append(f"The checkpoint of step {state['step']} holds the weights without the optimizer state, "
                             "so the run continues from it with a new optimizer state.")
    session.rng.bit_generator.state = state["rng"]
    session.prompt_seed = state.get("prompt_seed", session.prompt_seed)  # checkpoints of before had none
    session.notes.extend(resume_generator(session.generator, load_file(folder / "generator.safetensors")["generator"],
                                          (session.prompt_seed, ELSEWHERE, state["step"])))
    for name in PAIRS:
        setattr(session, name, [_pair(pair) for pair in state.get(name, [])])  # checkpoints of before had none
    for name in LEARNT:
        setattr(session, name, state.get(name, getattr(session, name)))  # checkpoints of before had none
    if "queues" in state:
        for name, lots in stored_objects.unpacked(tensors("queue"), state["queues"]).items():
            setattr(session, name, lots)
    session.knobs.update(state["knobs"])
    session.step, session.updates, session.tokens = state["step"], state["updates"], state["tokens"]
    session.finished_because = state["finished_because"]


def _pair(fields: Mapping[str, Any]) -> Pair:
    """A pair whose turns JSON has made lists."""
    return Pair(**{**fields, "turns": tuple(Turn(*turn) for turn in fields.get("turns", ()))})


def _read_policy(policy: PreTrainedModel, folder: Path) -> None:
    if lora.adapted(policy):
        lora.read_adapter(policy, folder)
    else:  # not the file itself: the names in it are the hub's, which for some models are not those in memory
        policy.load_state_dict(load(folder)[0].state_dict())


def _read_network(session: State, name: str, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    if not lora.adapted(session.policy):
        _check_shapes(name, model, tensors)
        model.load_state_dict(tensors)
        return
    if tensors and not lora.own(model) and (adapter := Lora.of(session.knobs, session.spec.seed)):
        adapter.put_on(model)  # a fork's reference, which its parent had trained
        model.requires_grad_(False)
    lora.put(model, tensors)


def _check_shapes(name: str, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Check that a network's weights have the sizes of the policy's, from which it was built: its vocabulary first."""
    for key, value in model.state_dict().items():
        if key in tensors and tensors[key].shape != value.shape:
            raise LabError(f"the {name} has {key} of {' × '.join(map(str, tensors[key].shape))}, and for this policy's "
                           f"vocabulary and size it is {' × '.join(map(str, value.shape))}")


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}


# ---------------------------------------------------------------- copy in memory
# A copy of a checkpoint in memory, to be written later. Saving takes long where the disk is slow, so the worker bounds
# the time it takes. A policy that is the best so far on held-out rows must not be lost all the same: it waits in memory
# until a checkpoint is due.

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
