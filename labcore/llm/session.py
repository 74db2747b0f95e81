"""A run of a language model: its networks, optimizers, random numbers and counters.

Everything that a run's future depends on lives here, so saving a session at a record and loading it again continues
the run bit for bit. Left out: the loops, which the catalog names; the clock, the disk layout and the controls, which
belong to the worker.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import cos, pi
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Self

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from labcore.catalog import choices
from labcore.catalog.choice import Choice
from labcore.catalog.llm.models import MODELS
from labcore.catalog.llm.optimizer import CONSTANT
from labcore.device import pick_device
from labcore.errors import Diverged
from labcore.llm import checkpoint, memory, networks, optimizers
from labcore.llm.batch import Completions
from labcore.llm.checkpoint import SmallState
from labcore.llm.context_room import check_room
from labcore.llm.copied_checkpoint import copied_checkpoint
from labcore.llm.drawing import ROWS, UNDRAWN, Position, epochs_done
from labcore.llm.graphs import Graphs, of_device
from labcore.llm.nets import compiled, lora
from labcore.llm.nets.critic import Critic
from labcore.llm.nets.forward import layers_of
from labcore.llm.nets.micro_batches import Cut, Room
from labcore.llm.nets.model import build, load, save
from labcore.llm.nets.teacher import load_teacher
from labcore.llm.nets.tokenizer import character_tokenizer
from labcore.llm.networks import BROUGHT, CRITIC, NETWORKS, POLICY, REFERENCE, SCORER, TEACHER, needs_scorer
from labcore.llm.probes.budget import Budget
from labcore.llm.rendering import Rendering
from labcore.llm.reward_models import check_rewards, reward_models
from labcore.maths.schedules import SCHEDULES
from labcore.runs.files.adapters import base_of, is_adapter
from labcore.runs.spec.activity import report
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.spec.session import Record
from labcore.tasks.preferences import labelled_pairs
from labcore.tasks.task import Pair, Problem, TextTask, held_of, make_task
from labcore.tasks.usable import CUT


@dataclass
class LlmSession:
    """See the module. `knobs` is changed in place during the run; `step`, `updates`, `tokens` count up.

    `past_rewards` is the mean of all rewards of the `past_count` completions so far, and `kl_factor` what an adaptive
    KL controller multiplies β with, as long as β is the `kl_beta` that it was learnt for. `entropy_coef` is the entropy
    bonus as adaptive control has moved it from the knob's value `entropy_begun`; it is paid where the last step's
    entropy was low (`entropy_low`). `of_prompts` are numbers that the run keeps for each prompt.
    `recent_gold` and `best_gold`
    are what early stopping compares. `labelled` are pairs that somebody labelled. `prompt_seed` chooses the prompts of
    each step; `rng` and `generator` are drawn from for everything else. `origin` is the folder or hub id of the weights
    that the run began with. `watched` is what `probes.watched` looks at during the whole run; it comes of the seed and
    the reference, so no checkpoint holds it. `earned` are rewards that pictures must not ask for again, and `unscored`
    says that in the last step whole groups had none. `cut` has how often micro-batches were halved, for want of memory.
    `notes` are sentences that the next record has, `standing` those that are true of the whole run, and `said` the ones
    of them that a record has had, so no resume repeats them. Copies of the session for evaluations and pictures share
    `cut` and `standing`. `probes` is the clock of what only looks. `moves` counts the policy's optimizer steps,
    `share_done` is the share of the step's updates that are made, and `idle` says that the last step had none. `drawn`
    is where the run stands in its epochs (`drawing`). `graphs` are the steps that a GPU has recorded; `sampler` draws
    completions while the run trains, where that is not the lab's own sampler. `queue` are groups that were sampled and
    not learnt from, `replay` those that may be learnt from again, and `lots` the number of the next batch to sample
    (`group_queue`). `pool` are the prompts that the run draws from, where it has a pool, and `pass_rates` what is known
    of each (`prompt_pool`). `recorded` is the small state at the last record, and `moved` says whether the step under
    way has begun to move weights.
    """

    spec: RunSpec
    task: TextTask
    tokenizer: PreTrainedTokenizerBase
    device: torch.device
    models: dict[str, nn.Module]
    optimizers: dict[str, torch.optim.Optimizer]
    generator: torch.Generator
    rng: np.random.Generator
    knobs: dict[str, Any]
    prompt_seed: int
    step: int = 0
    updates: int = 0
    tokens: int = 0
    pairs: list[Pair] = field(default_factory=list)
    labelled: list[Pair] = field(default_factory=list)
    past_rewards: float = 0.0
    past_count: int = 0
    kl_factor: float = 1.0
    kl_beta: float | None = None
    entropy_coef: float = 0.0
    entropy_begun: float | None = None
    entropy_low: bool = True
    of_prompts: dict[str, list[float]] = field(default_factory=dict)
    recent_gold: list[float] = field(default_factory=list)
    best_gold: float = 0.0
    finished_because: str = ""
    origin: str = ""
    watched: tuple[Any, ...] | None = None
    earned: dict[Hashable, dict[str, float]] = field(default_factory=dict)
    unscored: bool = False
    cut: Cut = field(default_factory=Cut)
    moves: int = 0
    idle: bool = False
    share_done: float = 0.0
    drawn: tuple[Position, Position] = (UNDRAWN, UNDRAWN)
    notes: list[str] = field(default_factory=list)
    standing: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    probes: Budget = field(default_factory=Budget, repr=False, compare=False)
    graphs: Graphs | None = None
    sampler: Callable[..., Completions] | None = None
    queue: list[Any] = field(default_factory=list)
    replay: list[Any] = field(default_factory=list)
    lots: int = 0
    pool: list[Problem] | None = field(default=None, repr=False)
    pass_rates: list[float | None] = field(default_factory=list)
    moved: bool = field(default=True, repr=False)
    recorded: SmallState | None = field(default=None, repr=False)

    @property
    def policy(self) -> PreTrainedModel:
        return self.models[POLICY]

    @property
    def reference(self) -> PreTrainedModel:
        return self.models[REFERENCE]

    @property
    def critic(self) -> Critic | None:
        critic = self.models.get(CRITIC)
        assert critic is None or isinstance(critic, Critic)
        return critic

    @property
    def halvings(self) -> int:
        """How often micro-batches were halved, be it in an update, an evaluation or a picture."""
        return self.cut.halvings

    @halvings.setter
    def halvings(self, count: int) -> None:
        self.cut.halvings = count

    @property
    def beta_factor(self) -> float:
        """The factor of β: 1 unless a controller follows a target, and has moved this very β."""
        moved = self.knobs["adaptive_kl_target"] and self.kl_beta in (None, self.knobs["beta"])
        return self.kl_factor if moved else 1.0

    @property
    def entropy_bonus(self) -> float:
        """The coefficient of the entropy bonus: that of the knob unless a controller has moved this very value."""
        begun = float(self.knobs["entropy_coef"])
        return self.entropy_coef if self.knobs.get("entropy_target") and self.entropy_begun == begun else begun

    @property
    def in_force(self) -> dict[str, Any]:
        """The knobs of an online run, β and the entropy bonus as adaptive controllers have moved them, and the weight
        of demonstrations at this step."""
        paid = self.entropy_low or not self.knobs.get("entropy_target")
        return {**self.knobs, "beta": self.knobs["beta"] * self.beta_factor,
                "entropy_coef": self.entropy_bonus if paid else 0.0, "sft_weight": self.imitation}

    @property
    def imitation(self) -> float:
        """The weight of demonstrations at this step: that of the knob, which falls to 0 over `sft_decay_steps`."""
        weight, steps = float(self.knobs.get("sft_weight", 0)), float(self.knobs.get("sft_decay_steps", 0))
        return weight * 0.5 * (1 + cos(pi * min(self.step / steps, 1))) if steps else weight

    @cached_property
    def rendering(self) -> Rendering:
        """How prompts and answers become tokens of the policy."""
        made = Rendering.of(self.tokenizer, self.policy, self.knobs)
        return replace(made, most=self.prompt_room) if self.knobs.get("long_prompts") == CUT else made

    @property
    def prompt_room(self) -> int:
        """Tokens that a prompt may have beside a completion of the length limit with which the run began."""
        return max(1, self.context - int(self.spec.knobs["max_new_tokens"]))

    @property
    def context(self) -> int:
        """Tokens that a prompt and its completion may take together, in the teacher too."""
        read = [self.policy, *([self.models[TEACHER]] if TEACHER in self.models else [])]
        found = (getattr(model.config.get_text_config(), "max_position_embeddings", None) for model in read)
        return min(int(each or self.tokenizer.model_max_length) for each in found)

    @staticmethod
    def start(spec: RunSpec, base_folder: Path | None = None, resume: Path | None = None) -> LlmSession:
        """Build what `spec` needs: on `base_folder`'s weights, and where `resume` is given, from that checkpoint.

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
        """Hold the networks and optimizers that the algorithm needs: what is missing is built from the policy."""
        kept = self.models
        self.models = networks.built(self.spec, self.knobs, kept)
        if needs_scorer(self.knobs):
            self.models[SCORER] = kept.get(SCORER) or reward_models(self.knobs, self.tokenizer, resume).to(self.device)
        if choices.needs_teacher(self.knobs):
            self.models[TEACHER] = kept.get(TEACHER) or self._teacher().to(self.device)
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
        """Train until `spec.steps`, or until the loop has what it wants. See `Record` for what is yielded."""
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

    def say_once(self, text: str) -> None:
        """Have a record say what is true of the whole run; once, also where the run is resumed."""
        if text and text not in self.standing:
            self.standing.append(text)

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

    def export(self, folder: Path) -> None:
        """Write the policy as a Hugging Face folder; with LoRA as one of `peft`, the adapter alone. It has the template
        that the run wrote prompts with, and all ends of a completion."""
        self.rendering.note_in(self.tokenizer, self.policy)
        if lora.adapted(self.policy):
            lora.save_adapter(self.policy, self.origin, folder)
            self.policy.generation_config.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
        else:
            save(self.policy, self.tokenizer, folder)

    def save(self, folder: Path) -> None:
        """Write a complete checkpoint into `folder`: see `checkpoint`."""
        checkpoint.write(self, folder)

    def kept(self) -> Callable[[Path], None] | None:
        """A function that writes the checkpoint of this record later: see `copied_checkpoint`."""
        return copied_checkpoint(self)

    def saved_networks(self) -> dict[str, nn.Module]:
        """The networks beside the policy, the reward models and the teacher that a checkpoint holds."""
        return {name: model for name, model in self.models.items()
                if name not in (POLICY, *BROUGHT) and NETWORKS[name].saved(self.spec)}


def _reward_of(knobs: Mapping[str, Any]) -> dict[str, Any]:
    """The knobs that say what a completion earns; none where the loop has no rewards."""
    chosen: list[Choice] = [choices.REWARD[source] for source in choices.sources_of(knobs)]
    chosen += [choices.SHAPING[str(knobs["shaping"])]] if "shaping" in knobs else []
    return {choice.key: [knobs[key] for key in choice.needs] for choice in chosen}


def _as_sampled(knobs: Mapping[str, Any]) -> tuple[Any, ...]:
    """What completions in a queue were sampled and scored for; nothing in a loop that has none."""
    return _reward_of(knobs), knobs.get("advantage"), "staleness" in knobs


def _scored_by(knobs: Mapping[str, Any]) -> list[Any]:
    """What the reward models of a run are loaded by."""
    steps = ("step_separator", "step_tag", "label_tokens") if choices.scores_steps(knobs) else ()
    return [choices.scores_steps(knobs), *(knobs.get(key) for key in ("reward_model", *steps))]
