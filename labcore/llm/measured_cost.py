"""The cost of a run: its networks, counted without allocating them, and measurements of a few steps.

The parameters are counted in the networks that `networks.NETWORKS` builds, here on torch's meta device. Bytes are those
of float32: 4 for a weight, 4 for its gradient, and 8 for the two moments of AdamW. The time of a step is measured, and
so is the largest memory that autograd keeps for the backward pass, which depends on the batch.

Left out: the libraries themselves (some 400 MB of code), and the buffers of single operations.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from labcore.catalog import choices
from labcore.catalog.families.distillation import SELF
from labcore.catalog.llm.models import MODELS
from labcore.errors import LabError
from labcore.llm.nets.critic import Critic
from labcore.llm.nets.folder import check_folder, find
from labcore.llm.nets.lora import Lora
from labcore.llm.nets.model import build
from labcore.llm.nets.scorer import CONFIG
from labcore.llm.nets.text_scorer import empty_text_scorer
from labcore.llm.nets.text_step_scorer import empty_step_scorer
from labcore.llm.nets.tokenizer import character_tokenizer
from labcore.llm.networks import NETWORKS, POLICY, SCORER, TEACHER, learning, learnt, needed, needs_scorer
from labcore.llm.optimizers import tensors_of
from labcore.llm.session import LlmSession
from labcore.llm.sizing.pace import base_folder
from labcore.runs.files.adapters import base_of, is_adapter
from labcore.runs.spec.model_names import PROCESS_WEIGHTS, is_published, members, reward_model_of, teacher_here
from labcore.runs.spec.run_spec import RunSpec
from labcore.tasks.task import Pair, make_task

WARM_UP, STEPS, SECONDS = 2, 5, 6.0  # steps before the measured ones, these, and after how long no more are begun
PAIRS = 256  # that stand for those that a run would sample before its first step
RARELY = 1_000_000  # steps between two evaluations: only training is measured


@dataclass(frozen=True)
class Held:
    """A network of a run: its weights that no other network before it has, and how many of these it learns."""

    name: str
    parameters: int
    learnt: int


# ---------------------------------------------------------------- counted


def models_held(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The job `models_held`: {"held": [[a row as `Held` for each network], or a sentence why not, …]} for `specs`."""
    found: list[Any] = []
    for text in spec["specs"]:
        try:
            found.append([asdict(each) for each in count(RunSpec.from_json(text))])
        except LabError as error:
            found.append(str(error))
    return {"held": found}


def count(spec: RunSpec) -> list[Held]:
    """The networks that a run of `spec` holds. Raises LabError where its model cannot be used."""
    return counted(spec, networks_of(spec))


def counted(spec: RunSpec, models: Mapping[str, nn.Module]) -> list[Held]:
    """The numbers of the networks that `networks_of` made."""
    seen: set[int] = set()
    found = []
    moved = learning(spec, spec.knobs)
    for name, model in models.items():
        own = {id(weight): weight for weight in model.parameters() if id(weight) not in seen}
        seen |= own.keys()
        changed = [weight for weight in own.values() if weight.requires_grad] if name in moved else []
        found.append(Held(name, *(sum(weight.numel() for weight in some) for some in (own.values(), changed))))
    return found


def networks_of(spec: RunSpec) -> dict[str, nn.Module]:
    """The networks as a session equips itself with them, without values, so they take no memory. Raises LabError if the
    model cannot be used."""
    with torch.device("meta"):
        return _networks(spec)


def _networks(spec: RunSpec) -> dict[str, nn.Module]:
    policy, adapter = _policy(spec), Lora.of(spec.knobs, spec.seed)
    if adapter:
        policy.requires_grad_(False)
    models = {name: NETWORKS[name].build(policy) for name in needed(spec, spec.knobs)}
    if adapter:
        for name in (POLICY, *learning(spec, spec.knobs)):
            adapter.put_on(models[name])
    if needs_scorer(spec.knobs):
        models[SCORER] = nn.ModuleList(
            (empty_step_scorer if choices.scores_steps(spec.knobs) else empty_text_scorer)(name)
            if is_published(name) else _empty_scorer(reward_model_of(name, looks=True))
            for name in members(str(spec.knobs["reward_model"]))).requires_grad_(False)
    named = choices.needs_teacher(spec.knobs) and spec.knobs["teacher"] not in ("", SELF)
    if named and not spec.row.knob("teacher").choices:
        name = str(spec.knobs["teacher"])
        models[TEACHER] = _empty(str(teacher_here(name) or name)).requires_grad_(False)
    return models


def _empty_scorer(folder: Path) -> nn.Module:
    """A reward model from its configuration: its weights lie beside that, not in it."""
    policy = folder / CONFIG
    body = _empty(base_of(policy)) if is_adapter(policy) else _of_config(policy)
    return Critic(body, 2 if (folder / PROCESS_WEIGHTS).is_file() else 1)


def _policy(spec: RunSpec) -> PreTrainedModel:
    if spec.model in MODELS:
        task = make_task(spec.task_row, spec.knobs, spec.data)
        return build(MODELS[spec.model], character_tokenizer(task.characters), spec.seed)
    return _empty(spec.model)


def _empty(name: str) -> PreTrainedModel:
    folder = find(name)
    if is_adapter(folder):
        return _empty(base_of(folder))
    check_folder(folder)
    return _of_config(folder)


def _of_config(folder: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder, local_files_only=True))


# ---------------------------------------------------------------- measured


def measure(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The job `cost` of `spec["spec"]`: bytes of its `weights`, `gradients`, `optimizer` and `activations`, by how much
    the process grew at its `peak` (without the files of libraries), the `seconds` of each of some steps, and
    `measured`, the time of the measurement (s since 1970). With one thread the seconds are the processor's, which other
    programs do not change. Raises LabError if the run cannot be made here."""
    run = RunSpec.from_json(spec["spec"])
    knobs = {**run.knobs, "eval_every": RARELY} if "eval_every" in run.knobs else run.knobs
    torch.set_num_threads(run.threads)
    before, mapped = _peak(), _mapped()
    session = _Stepping.start(replace(run, knobs=knobs, steps=RARELY), base_folder(run))
    if "pairs" in knobs and choices.PAIRS[str(knobs["pairs"])].once:
        session.pairs = _pairs(session)
    kept, gradients = _Kept(session.models.values()), {}
    for name, optimizer in session.optimizers.items():
        optimizer.register_step_pre_hook(lambda *_, name=name: gradients.update({name: _gradients(session, name)}))
    steps = _steps(session)
    with kept.counting():
        next(steps)
    for _ in range(WARM_UP - 1):
        next(steps)
    single = run.threads == 1 and session.device.type == "cpu"
    seconds = _timed(steps, time.process_time if single else time.perf_counter)
    return {"weights": _bytes({id(weight): weight for model in session.models.values()
                               for weight in model.parameters()}.values()),
            "gradients": sum(gradients.values()),
            "optimizer": sum(_bytes(tensors_of(optimizer).values()) for optimizer in session.optimizers.values()),
            "activations": kept.most, "peak": max(0, _peak() - before - (_mapped() - mapped)), "seconds": seconds,
            "measured": time.time()}


class _Stepping(LlmSession):
    """A session that takes every step of its optimizers: weights that have learnt nothing earn equal rewards, which are
    no signal, and a run's later steps have one."""

    @staticmethod
    def start(spec: RunSpec, base_folder: Path | None = None, resume: Path | None = None) -> LlmSession:
        return _Stepping._start(spec, base_folder, resume)

    def learns_from(self, norm: float) -> bool:
        return True


def _steps(session: LlmSession) -> Iterator[None]:
    """Whole steps of the session."""
    for record in session.run():
        if record is not None:
            yield


def _pairs(session: LlmSession) -> list[Pair]:
    """Pairs as long as a run's own. Weights that have learnt nothing yet give none, and speed does not depend on it."""
    problems = session.task.problems(PAIRS, session.rng)
    answers = [problem.answer or problem.prompt for problem in problems]
    return [Pair(problem.prompt, chosen, rejected, problem.line, answer=chosen)
            for problem, chosen, rejected in zip(problems, answers, answers[1:] + answers[:1], strict=True)]


def _timed(steps: Iterator[None], clock: Callable[[], float]) -> list[float]:
    seconds: list[float] = []
    while len(seconds) < STEPS and sum(seconds) < SECONDS:
        begun = clock()
        next(steps)
        seconds.append(clock() - begun)
    return seconds


class _Kept:
    """Bytes that autograd keeps for a backward pass: those of each tensor once, and none of the weights."""

    def __init__(self, models: Iterable[nn.Module]):
        self._weights = {weight.untyped_storage().data_ptr() for model in models for weight in model.parameters()}
        self._uses: dict[int, int] = {}
        self._now = self.most = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: _Saved(self, tensor), lambda saved: saved.tensor):
            yield

    def add(self, place: int, size: int) -> None:
        if place not in self._weights:
            self._uses[place] = self._uses.get(place, 0) + 1
            self._now += size if self._uses[place] == 1 else 0
            self.most = max(self.most, self._now)

    def drop(self, place: int, size: int) -> None:
        if place not in self._weights:
            self._uses[place] -= 1
            self._now -= 0 if self._uses[place] else size


class _Saved:
    """A tensor that the backward pass will want; gone when the pass has had it."""

    def __init__(self, kept: _Kept, tensor: Tensor):
        storage = tensor.untyped_storage()
        self.kept, self.tensor, self.place, self.size = kept, tensor, storage.data_ptr(), storage.nbytes()
        kept.add(self.place, self.size)

    def __del__(self) -> None:
        self.kept.drop(self.place, self.size)


def _gradients(session: LlmSession, name: str) -> int:
    return _bytes(weight.grad for weight in learnt(session.models[name]) if weight.grad is not None)


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _peak() -> int:
    """The most memory that this process has had so far, bytes."""
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    from resource import RUSAGE_SELF, getrusage

    return getrusage(RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)  # else KiB


def _mapped() -> int:
    """Bytes of files in this process's memory. They are libraries, which processes share, and the kernel maps varying
    amounts around the used parts. Only Linux counts them separately."""
    return int(psutil.Process().memory_info().shared) if sys.platform == "linux" else 0
