"""A run of a language model: how its state is built, trained, forked and saved.

Left out: the loops, which the catalog names; the clock, the disk layout and the controls, which belong to the worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Self

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from labcore.catalog import choices
from labcore.catalog.choice import Choice
from labcore.catalog.families.distillation import SELF
from labcore.catalog.llm.models import MODELS
from labcore.catalog.llm.optimizer import CONSTANT
from labcore.device import pick_device
from labcore.errors import Diverged
from labcore.llm import checkpoint, memory, networks, optimizers
from labcore.llm.drawing import ROWS, UNDRAWN, epochs_done
from labcore.llm.fitting import check_room
from labcore.llm.graphs import of_device
from labcore.llm.nets import compiled
from labcore.llm.nets.forward import layers_of
from labcore.llm.nets.micro_batches import Room
from labcore.llm.nets.model import build, load
from labcore.llm.nets.teacher import load_teacher
from labcore.llm.nets.tokenizer import character_tokenizer
from labcore.llm.networks import NETWORKS, POLICY, REFERENCE, SCORER, TEACHER, needs_scorer
from labcore.llm.reward_models import check_rewards, reward_models
from labcore.llm.state import SmallState, State
from labcore.maths.schedules import SCHEDULES
from labcore.runs.files.adapters import base_of, is_adapter
from labcore.runs.spec.activity import report
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.spec.session import Record
from labcore.tasks.preferences import labelled_pairs
from labcore.tasks.task import TextTask, held_of, make_task


class LlmSession(State):
    """The state of a run, and its training. See `labcore.runs.spec.session.Session`."""

    @staticmethod
    def start(spec: RunSpec, base_folder: Path | None = None, resume: Path | None = None) -> LlmSession:
        """Build the session of `spec` on the weights in `base_folder`, or from the checkpoint `resume` if there is one.

        Raises:
            LabError: the model, the data or the device cannot be used.
        """
        return LlmSession._start(spec, base_folder, resume)

    @classmethod
    def _start(cls, spec: RunSpec, base_folder: Path | None, resume: Path | None) -> Self:
        """`start`, for a session of this class."""
        device = pick_device(spec.device)
        memory.prepare(device, spec)
        report("reading the data")
        task = make_task(spec.task_row, spec.knobs, spec.data)
        source = str(base_folder) if base_folder else spec.model
        if resume and is_adapter(resume / POLICY):  # a fork is not told its base
            source = base_of(resume / POLICY)
        policy, tokenizer = cls._weights(source, task, spec.seed)
        session = cls(spec, task, tokenizer, device, {"policy": policy.to(device)}, {},
                      torch.Generator(device).manual_seed(spec.seed), np.random.default_rng(spec.seed),
                      dict(spec.knobs), spec.seed, origin=source, graphs=of_device(device))
        check_rewards(session.knobs, session.task)
        report("building the networks")
        session._equip(resume)
        if resume:
            report("reading the checkpoint")
            checkpoint.read(session, resume)
        else:
            session._take_labels()
        check_room(session)
        return session

    @staticmethod
    def _weights(source: str, task: TextTask, seed: int) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """The model that a run begins with: a built-in one of random weights, or those of a folder or hub id."""
        if source in MODELS:
            tokenizer = character_tokenizer(task.characters)
            return build(MODELS[source], tokenizer, seed), tokenizer
        return load(source)

    def _take_labels(self) -> None:
        """Read the labelled pairs that the knobs name; checkpoints hold them, so that the file may go."""
        place = str(self.knobs.get("labelled_pairs", ""))
        self.labelled = labelled_pairs(place) if place else []

    def _equip(self, resume: Path | None = None) -> None:
        """Add the networks and optimizers that the algorithm needs; missing networks are built from the policy."""
        kept = self.models
        self.models = networks.built(self.spec, self.knobs, kept)
        if needs_scorer(self.knobs):
            self.models[SCORER] = kept.get(SCORER) or reward_models(self.knobs, self.tokenizer, resume).to(self.device)
        if choices.needs_teacher(self.knobs):
            own = self.models.get(REFERENCE) if self.knobs["teacher"] == SELF else kept.get(TEACHER)
            self.models[TEACHER] = own or self._teacher().to(self.device)
        networks.prepare(self.spec, self.knobs, self.models)
        self.optimizers = networks.optimizers_for(self.spec, self.knobs, self.models, self.optimizers)
        if self.knobs.get("compile"):
            compiled.check(self.device)
            if not layers_of(self.policy).plain_head:
                self.say_once(f"Only the computations on the logits are compiled: a {self.policy.config.model_type} "
                              "model's own passes are not.")

    def _teacher(self) -> PreTrainedModel:
        """The teacher that the knobs name."""
        return load_teacher(self.knobs, self.tokenizer)

    def fork(self, spec: RunSpec) -> LlmSession:
        """This session as that of its fork `spec`: the networks that both algorithms have continue, others are built.

        A reference that was not there before is the policy as it is now. The mean of earlier rewards goes on only where
        rewards are made as before.
        """
        before = self.knobs
        self.__dict__.pop("rendering", None)  # made anew from the fork's knobs
        if _reward_of(spec.knobs) != _reward_of(before):
            self.past_rewards, self.past_count, self.earned, self.of_prompts = 0.0, 0, {}, {}
        if spec.knobs.get("advantage") != before.get("advantage"):
            self.of_prompts = {}  # of another meaning
        self.spec, self.knobs, self.finished_because, self.watched = spec, dict(spec.knobs), "", None
        self.standing, self.said = [], []  # of its own
        check_rewards(self.knobs, self.task)
        if _scored_by(before) != _scored_by(self.knobs):
            self.models.pop(SCORER, None)
            self.recent_gold, self.best_gold = [], 0.0
        if before.get("teacher") != self.knobs.get("teacher"):
            self.models.pop(TEACHER, None)
        if before.get("optimizer") != self.knobs.get("optimizer"):
            self.optimizers = {}  # of other moments: they begin anew
        self._equip()
        if before.get("labelled_pairs") != self.knobs.get("labelled_pairs"):
            self._take_labels()
            self.drawn = self.drawn[ROWS], UNDRAWN
        if "pairs" not in spec.knobs:
            self.pairs = []
        if not spec.twin or _as_sampled(spec.knobs) != _as_sampled(before):
            self.queue, self.replay = [], []
        if not spec.twin:
            self.generator, self.rng = self.generator.manual_seed(spec.seed), np.random.default_rng(spec.seed)
            self.prompt_seed, self.drawn, self.pass_rates = spec.seed, (UNDRAWN, UNDRAWN), []
        self.pool = None  # drawn anew, by the seed
        check_room(self)
        return self

    def run(self) -> Iterator[Record | None]:
        """Train until `spec.steps`, or until the loop ends the run earlier. See `Record` for the values that it yields.
        """
        stages = resolve_name(self.spec.kind_row.loops[self.spec.row.loop])(self)
        records = resolve_name("labcore.llm.probes.pictures:beside")(self, stages)
        if held_of(self.task):
            records = resolve_name("labcore.llm.loops.held_out:beside")(self, records)
        self._begin_step()
        try:
            for record in records:
                if record is not None:
                    record = replace(record, metrics=record.metrics | epochs_done(self),
                                     notes=(*record.notes, *self._take_notes()))
                yield record
                if record is not None:
                    self._begin_step()
        finally:
            if self.graphs:
                self.graphs.free()
        if not self.finished_because:
            self.finished_because = f"all {self.spec.steps} steps done"

    def _take_notes(self) -> list[str]:
        """The notes of the next record: those of the whole run that were not said before, then those of its step."""
        fresh = [text for text in self.standing if text not in self.said]
        taken, self.notes = [*fresh, *self.notes], []
        self.said = [*self.said, *fresh]
        return taken

    def _begin_step(self) -> None:
        self.recorded, self.moved = SmallState.of(self).copied(), False

    @contextmanager
    def as_recorded(self) -> Iterator[None]:
        """Within it the session is as it was at its last record, though a step is under way that has not `moved`."""
        assert self.recorded and not self.moved
        now = SmallState.of(self)
        self.recorded.put(self)
        try:
            yield
        finally:
            now.put(self)

    @property
    def room(self) -> Room:
        """The memory that a micro-batch may take."""
        return memory.room(self)

    def halve_micro_batches(self) -> None:
        """From now on cut batches into parts of half the size: see `memory`."""
        memory.halve_micro_batches(self)

    def rate(self, name: str) -> float:
        """The learning rate of network `name` in the next update, as the schedule has moved it."""
        knobs = self.knobs  # problems with exact values have no schedule
        moved = SCHEDULES[str(knobs.get("schedule", CONSTANT))](
            self.step + self.share_done, int(knobs.get("warmup_steps", 0)), self.spec.steps)
        return float(knobs[NETWORKS[name].learning_rate]) * moved

    def update(self, name: str, loss: float) -> dict[str, float]:
        """Make an optimizer step of network `name` at its learning rate. Returns its metrics."""
        rate = self.rate(name)
        norm = self.optimise(name, rate, loss)
        self.updates += 1
        return {"grad_norm": norm, "learning_rate": rate}

    def optimise(self, name: str, learning_rate: float, loss: float) -> float:
        """Take one clipped step of network `name` on the gradients it holds. Returns their norm before the clip.

        Without any gradient there is no step: moments of earlier steps and weight decay would move the weights all the
        same.

        Raises:
            Diverged: the loss or the norm is not finite; the weights are left as they were.
        """
        optimizer = self.optimizers[name]
        norm = float(nn.utils.clip_grad_norm_(self.models[name].parameters(), float(self.knobs["max_grad_norm"])))
        for what, value in ((f"{name} loss", loss), (f"{name} gradient", norm)):
            if not np.isfinite(value):
                raise Diverged(self.step + 1, what)
        if self.learns_from(norm):
            self.moved = True
            optimizers.step(optimizer, self.models[name], learning_rate, self.knobs)
            self.moves += name == POLICY
        optimizer.zero_grad(set_to_none=True)
        return norm

    def learns_from(self, norm: float) -> bool:
        """True if a gradient of this norm is worth a step of the optimizer."""
        return norm > 0

    def say_no_signal(self, idle: bool) -> None:
        """Have the next record say that a step had no update (`idle`), where the one before had some."""
        if idle and not self.idle:
            self.notes.append("No signal: no update. Every advantage of the batch is 0 and so is the gradient of the "
                              "KL term. The policy stays as it is until a batch has signal.")
        self.idle = idle

    def save(self, folder: Path) -> None:
        """Write a complete checkpoint into `folder`: see `checkpoint`."""
        checkpoint.write(self, folder)

    def kept(self) -> Callable[[Path], None] | None:
        """A function that writes the checkpoint of this record later: see `checkpoint`."""
        return checkpoint.copied_checkpoint(self)


def _reward_of(knobs: Mapping[str, Any]) -> dict[str, Any]:
    """The knobs that determine the reward of a completion; empty if the loop has no rewards."""
    chosen: list[Choice] = [choices.REWARD[source] for source in choices.sources_of(knobs)]
    chosen += [choices.SHAPING[str(knobs["shaping"])]] if "shaping" in knobs else []
    return {choice.key: [knobs[key] for key in choice.needs] for choice in chosen}


def _as_sampled(knobs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The settings that completions in a queue were sampled and scored with; nothing in a loop that has none."""
    return _reward_of(knobs), knobs.get("advantage"), "staleness" in knobs


def _scored_by(knobs: Mapping[str, Any]) -> list[Any]:
    """The settings that decide which reward models a run loads, and how."""
    steps = ("step_separator", "step_tag", "label_tokens") if choices.scores_steps(knobs) else ()
    return [choices.scores_steps(knobs), *(knobs.get(key) for key in ("reward_model", *steps))]
