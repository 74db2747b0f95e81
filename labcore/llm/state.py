"""The state of a language model's run: its networks, optimizers, random numbers and counters.

Everything that a run's future depends on is here, so a session that is saved at a record and loaded again continues the
run bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import cos, pi
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from labcore.llm.batch import Completions
from labcore.llm.drawing import UNDRAWN, Position
from labcore.llm.graphs import Graphs
from labcore.llm.nets import lora
from labcore.llm.nets.critic import Critic
from labcore.llm.nets.micro_batches import Cut
from labcore.llm.nets.model import save
from labcore.llm.networks import BROUGHT, CRITIC, NETWORKS, POLICY, REFERENCE, TEACHER
from labcore.llm.probes.budget import Budget
from labcore.llm.rendering import Rendering
from labcore.runs.spec.run_spec import RunSpec
from labcore.tasks.task import Pair, Problem, TextTask
from labcore.tasks.usable import CUT

PAIRS = ("pairs", "labelled")  # those made before the first step, and those that somebody labelled
# Numbers that a run moves by itself.
LEARNT = ("past_rewards", "past_count", "kl_factor", "kl_beta", "entropy_coef", "entropy_begun", "entropy_low",
          "of_prompts", "recent_gold", "best_gold", "halvings", "moves", "idle", "drawn", "said", "lots",
          "pass_rates")
QUEUES = ("queue", "replay")  # sampled groups not yet learnt from, and earlier groups to learn from again
COUNTERS = ("step", "updates", "tokens", "finished_because", "prompt_seed")


@dataclass
class State:
    """The state of a run. `knobs` is changed in place during the run; `step`, `updates`, `tokens` count up. Copies for
    evaluations and pictures share `cut` and `standing`."""

    spec: RunSpec
    task: TextTask
    tokenizer: PreTrainedTokenizerBase
    device: torch.device
    models: dict[str, nn.Module]
    optimizers: dict[str, torch.optim.Optimizer]
    generator: torch.Generator  # all random numbers but the choice of prompts come from it and from `rng`
    rng: np.random.Generator
    knobs: dict[str, Any]
    prompt_seed: int  # chooses the prompts of each step
    step: int = 0
    updates: int = 0
    tokens: int = 0
    pairs: list[Pair] = field(default_factory=list)  # made before the first step
    labelled: list[Pair] = field(default_factory=list)  # pairs that somebody labelled
    past_rewards: float = 0.0  # mean of all rewards of the `past_count` completions so far
    past_count: int = 0
    kl_factor: float = 1.0  # by which an adaptive KL controller multiplies β, as long as β is `kl_beta`
    kl_beta: float | None = None
    entropy_coef: float = 0.0  # as adaptive control has moved it from the knob's value `entropy_begun`
    entropy_begun: float | None = None
    entropy_low: bool = True  # the entropy of the last step was below the target, so the entropy bonus is paid
    of_prompts: dict[str, list[float]] = field(default_factory=dict)  # numbers that the run keeps for each prompt
    recent_gold: list[float] = field(default_factory=list)  # early stopping compares these with `best_gold`
    best_gold: float = 0.0
    finished_because: str = ""
    origin: str = ""  # folder or hub id of the weights that the run began with
    watched: tuple[Any, ...] | None = None  # see `probes.watched`; made from the seed and the reference, never saved
    earned: dict[Hashable, dict[str, float]] = field(default_factory=dict)  # rewards that pictures must not ask again
    unscored: bool = False  # in the last step whole groups had no reward
    cut: Cut = field(default_factory=Cut)  # how often micro-batches were halved for lack of memory
    moves: int = 0  # optimizer steps of the policy
    idle: bool = False  # the last step had no update
    share_done: float = 0.0  # of the step's updates
    drawn: tuple[Position, Position] = (UNDRAWN, UNDRAWN)  # where the run is in its epochs: see `drawing`
    notes: list[str] = field(default_factory=list)  # sentences for the next record
    standing: list[str] = field(default_factory=list)  # sentences that are true of the whole run
    said: list[str] = field(default_factory=list)  # those of `standing` that a record has had: no resume repeats them
    probes: Budget = field(default_factory=Budget, repr=False, compare=False)
    graphs: Graphs | None = None  # decoding steps that a GPU has recorded
    sampler: Callable[..., Completions] | None = None  # draws completions in place of the lab's own sampler
    queue: list[Any] = field(default_factory=list)  # groups that were sampled and not yet learnt from
    replay: list[Any] = field(default_factory=list)  # groups that may be learnt from again
    lots: int = 0  # the number of the next batch to sample: see `group_queue`
    pool: list[Problem] | None = field(default=None, repr=False)  # prompts that the run draws from: see `prompt_pool`
    pass_rates: list[float | None] = field(default_factory=list)  # known pass rates of the pool's prompts
    moved: bool = field(default=True, repr=False)  # the present step has begun to move weights
    recorded: SmallState | None = field(default=None, repr=False)  # at the last record

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
        """The number of times that micro-batches were halved, be it in an update, an evaluation or a picture."""
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
        """The way in which prompts and answers become tokens of the policy."""
        made = Rendering.of(self.tokenizer, self.policy, self.knobs)
        return replace(made, most=self.prompt_room) if self.knobs.get("long_prompts") == CUT else made

    @property
    def prompt_room(self) -> int:
        """The largest number of tokens that a prompt may have, so that a completion of the run's initial length limit
        fits behind it."""
        return max(1, self.context - int(self.spec.knobs["max_new_tokens"]))

    @property
    def context(self) -> int:
        """Tokens that a prompt and its completion may take together, in the teacher too."""
        read = [self.policy, *([self.models[TEACHER]] if TEACHER in self.models else [])]
        found = (getattr(model.config.get_text_config(), "max_position_embeddings", None) for model in read)
        return min(int(each or self.tokenizer.model_max_length) for each in found)

    def say_once(self, text: str) -> None:
        """Add a note about the whole run to a record; once, even if the run is resumed."""
        if text and text not in self.standing:
            self.standing.append(text)

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

    def saved_networks(self) -> dict[str, nn.Module]:
        """The networks beside the policy, the reward models and the teacher that a checkpoint holds."""
        return {name: model for name, model in self.models.items()
                if name not in (POLICY, *BROUGHT) and NETWORKS[name].saved(self.spec)}


# ---------------------------------------------------------------- small state
# The part of the state that a step changes before it moves any weight: counters, random numbers, pairs and learnt
# statistics. It is small, so a session copies it at each record. With the copy, a step that has moved no weight yet can
# be undone.

@dataclass(frozen=True)
class SmallState:
    """The fields of a state that `COUNTERS`, `PAIRS`, `QUEUES` and `LEARNT` name, and the states of its two
    generators."""

    fields: dict[str, Any]
    rng: Any
    generator: Tensor

    @staticmethod
    def of(state: State) -> SmallState:
        """The state of `state` now; its lists are the state's own."""
        return SmallState({name: getattr(state, name) for name in (*COUNTERS, *PAIRS, *QUEUES, *LEARNT)},
                          state.rng.bit_generator.state, state.generator.get_state())

    def copied(self) -> SmallState:
        """A copy with lists of its own, which the state will not change."""
        return replace(self, fields={name: copy(value) for name, value in self.fields.items()})

    def put(self, state: State) -> None:
        """Give `state` this state."""
        for name, value in self.fields.items():
            setattr(state, name, value)
        state.rng.bit_generator.state = self.rng
        state.generator.set_state(self.generator)
