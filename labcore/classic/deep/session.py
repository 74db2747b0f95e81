"""A run of a deep classic method: its networks, optimizers, environments, random numbers and counters.

Everything that a run's future depends on lives here, so saving a session at a record and loading it again continues
the run bit for bit. Left out: the methods, whose loops move a session and are named by the catalog; the clock, the disk
layout and the controls, which belong to the worker.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, cast

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from labcore.catalog.cartpole import DeepAlgorithm
from labcore.classic.deep import networks as checkpoint
from labcore.classic.deep.experience import Episodes, Replay
from labcore.classic.deep.networks import MLP
from labcore.classic.deep.standardise import RewardScale, Standardise
from labcore.classic.envs.cartpole import WORLD, TorchCartPole
from labcore.classic.envs.gym_env import Environments, make_environments
from labcore.device import pick_device, resume_generator
from labcore.errors import Diverged, LabError
from labcore.runs.files.untrusted import json_of
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.spec.session import Record

_COUNTERS = ("step", "updates", "env_steps", "best_return", "best_step")
_RANDOM = ("rng", "generator")  # the parts of the environments' state that are random numbers to come


@dataclass
class DeepSession:
    """See the module. `knobs` is changed in place during the run; the counters count up.

    `numbers` is what a method keeps between steps (the adaptive factor of β); `best` the acting network's weights at
    the best greedy evaluation so far; `notes` the messages on the course of the run for the next record.
    """

    spec: RunSpec
    knobs: dict[str, Any]
    device: torch.device
    networks: dict[str, MLP]
    optimizers: dict[str, torch.optim.Optimizer]
    environments: Environments | TorchCartPole
    generator: torch.Generator
    episodes: Episodes
    replay: Replay | None = None
    reward_scale: RewardScale | None = None
    step: int = 0
    updates: int = 0
    env_steps: int = 0
    numbers: dict[str, float] = field(default_factory=dict)
    best: dict[str, Tensor] = field(default_factory=dict)
    best_return: float | None = None
    best_step: int = 0
    finished_because: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def row(self) -> DeepAlgorithm:
        return cast(DeepAlgorithm, self.spec.row)

    @property
    def acting(self) -> MLP:
        """The network whose outputs choose actions: logits, or Q values."""
        return self.networks[self.row.acts]

    @property
    def transitions(self) -> Replay:
        """The replay of a method whose row asks for one."""
        assert self.replay is not None, "the row asks for none"
        return self.replay

    @property
    def policy(self) -> MLP:
        return self.networks["policy"]

    @property
    def critic(self) -> MLP:
        return self.networks["critic"]

    @property
    def standardised(self) -> list[Standardise]:
        """The running moments of the observations, of every network that has them."""
        return [network.standardise for network in self.networks.values() if network.standardise is not None]

    @property
    def remaining(self) -> float:
        """1 at the first step, falling to 0 after the last; always 1 where nothing is annealed."""
        return 1 - self.step / self.spec.steps if self.knobs["anneal"] else 1.0

    @staticmethod
    def start(spec: RunSpec, base_folder: Path | None = None, resume: Path | None = None) -> DeepSession:
        """Build the session of `spec`, or continue it from the checkpoint `resume`. There is no base to start from.
        Raises LabError if the environment, the device or the checkpoint cannot be used."""
        # These networks are so small that a GPU is faster only with thousands of environments: it has to be asked for.
        device = pick_device("cpu" if spec.device == "auto" else spec.device)
        knobs, row = dict(spec.knobs), cast(DeepAlgorithm, spec.row)
        # Streams of their own: weights, environments and actions from one seed must not share their numbers.
        weights, worlds, actions = (int(word) for word in np.random.SeedSequence(spec.seed).generate_state(3))
        environments = _environments(spec, device, worlds)
        world = environments.world
        made = resolve_name(row.networks)(world, knobs, torch.Generator().manual_seed(weights))
        networks = {name: network.to(device) for name, network in made.items()}
        session = DeepSession(spec, knobs, device, networks,
                              {name: resolve_name(make)(networks[name]) for name, make in row.optimizers.items()},
                              environments, torch.Generator(device).manual_seed(actions),
                              Episodes.none(environments.count))
        if knobs["normalise_rewards"]:
            session.reward_scale = RewardScale(np.zeros(environments.count))
        if row.replay:
            session.replay = Replay(int(knobs["buffer_size"]), world.observation_size, device, world.states)
        if resume:
            session._load(resume)
        return session

    def fork(self, spec: RunSpec) -> DeepSession:
        """A session of the fork `spec` that starts where this session is. Weights, optimizers of the same type, replay,
        environments and counters continue; everything else begins anew.

        If the fork has common random numbers (`twin`), its random numbers continue too; otherwise it uses those that it
        was started with. In both cases the present episodes are played to their ends.
        """
        child = DeepSession.start(spec)
        for name, network in child.networks.items():
            network.load_state_dict(self.networks[name].state_dict())
        for name, optimizer in child.optimizers.items():
            if type(self.optimizers.get(name)) is type(optimizer):
                optimizer.load_state_dict(self.optimizers[name].state_dict())
        if child.replay is not None and self.replay is not None:
            child.replay.restore(self.replay.tensors())
        if child.reward_scale is not None and self.reward_scale is not None:
            child.reward_scale = self.reward_scale
        if spec.algorithm == self.spec.algorithm:
            child.numbers = self.numbers
        for name in (*_COUNTERS, "best", "episodes"):
            setattr(child, name, getattr(self, name))
        state = self.environments.state()
        if spec.twin:
            child.generator = self.generator
        else:
            state |= _random(child.environments)
        child.environments.load_state(state)
        return child

    def run(self) -> Iterator[Record]:
        """Train until `spec.steps`, a Record per step."""
        for record in resolve_name(self.row.method)(self):
            if self.notes:
                record, self.notes = replace(record, notes=(*record.notes, *self.notes)), []
            yield record
        self.finished_because = self.finished_because or f"all {self.spec.steps} steps done"

    def optimise(self, name: str, learning_rate: float, loss: Tensor) -> float:
        """Take one clipped step of network `name` down the gradient of `loss`. Returns its norm before the clip. Raises
        Diverged if the loss or the norm is not finite; the weights are left as they were."""
        optimizer = self.optimizers[name]
        weights = optimizer.param_groups[0]["params"]
        gradients = torch.autograd.grad(loss, weights)
        norm = float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))))
        self.must_be_finite(f"{name} loss", float(loss.detach()))
        self.must_be_finite(f"{name} gradient", norm)
        if norm > self.knobs["max_grad_norm"]:
            torch._foreach_mul_(gradients, self.knobs["max_grad_norm"] / norm)
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * self.remaining
        optimizer.step()
        return norm

    def must_be_finite(self, what: str, value: float) -> None:
        """Check a number of the run; `what` names it. Raises Diverged if `value` is not finite."""
        if not isfinite(value):
            raise Diverged(self.step + 1, what)

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor under a name of its own, copied."""
        found = {"generator": self.generator.get_state()} | checkpoint.tensors_of(self.networks, self.optimizers)
        found |= {f"best/{key}": value for key, value in self.best.items()}
        if self.replay is not None:
            found |= {f"replay/{key}": value for key, value in self.replay.tensors().items()}
        return checkpoint.plain(found)

    def values(self) -> dict[str, Any]:
        """Everything else, JSON-clean."""
        return {**{name: getattr(self, name) for name in (*_COUNTERS, "numbers", "finished_because", "knobs")},
                **({"reward_scale": self.reward_scale.state()} if self.reward_scale else {}),
                "environments": self.environments.state(), "returns": self.episodes.returns.tolist(),
                "lengths": self.episodes.lengths.tolist()}

    def save(self, folder: Path) -> None:
        """Write a complete checkpoint into `folder`, safetensors and JSON only; its folder `policy` holds the acting
        policy."""
        save_file(self.tensors(), folder / "tensors.safetensors")
        acting, weights = self.acting, self.acting.state_dict()
        checkpoint.save_policy(folder / "policy", weights, self.best or weights, {
            "kind": self.spec.kind, "algorithm": self.spec.algorithm, "environment": self.spec.task,
            "sizes": acting.sizes, "activation": acting.activation, "normed": acting.normed,
            "standardised": acting.standardise is not None, "continuous": self.environments.world.continuous,
            "arguments": self.spec.knobs["env_args"], "outputs": self.row.acts,
            "step": self.step, "best_step": self.best_step, "best_return": self.best_return})
        (folder / "state.json").write_text(json.dumps(self.values()), encoding="utf-8")

    def _load(self, folder: Path) -> None:
        try:
            values = json_of((folder / "state.json").read_bytes(), constants=True)
            self._restore(load_file(folder / "tensors.safetensors"), values)
        except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".:")
            raise LabError(f"The checkpoint {folder.name} cannot be read ({reason}): resume from an earlier one, or "
                           "start the run again.") from error

    def _restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """The inverse of `tensors` and `values`. On another kind of device random numbers begin anew."""
        seeds = (self.spec.seed, values["step"])
        restarted = resume_generator(self.generator, tensors["generator"], seeds)
        self.notes += restarted
        checkpoint.restore(self.networks, self.optimizers, tensors)
        self.best = {key: value.to(self.device) for key, value in checkpoint.under(tensors, "best/").items()}
        if self.replay is not None:
            self.replay.restore(checkpoint.under(tensors, "replay/"))
        if self.reward_scale is not None:
            self.reward_scale = RewardScale.of_state(values["reward_scale"])
        state = values["environments"]
        if restarted:
            worlds = int(np.random.SeedSequence((*seeds, 1)).generate_state(1)[0])
            state |= _random(_environments(self.spec, self.device, worlds))
        self.environments.load_state(state)
        self.knobs.update(values["knobs"])
        for name in (*_COUNTERS, "numbers", "finished_because"):
            setattr(self, name, values[name])
        self.episodes.returns[:] = values["returns"]
        self.episodes.lengths[:] = np.array(values["lengths"], np.int64)


def _environments(spec: RunSpec, device: torch.device, seed: int) -> Environments | TorchCartPole:
    """The environments of a run, in torch where they are on its device."""
    count = int(spec.knobs["environments"])
    arguments = str(spec.knobs["env_args"])
    if device.type != "cpu" and spec.task == WORLD.env_id and not arguments:
        return TorchCartPole(count, seed, device)
    return make_environments(spec.task, count, seed, arguments)


def _random(environments: Environments | TorchCartPole) -> dict[str, Any]:
    """The part of their state that is random numbers to come."""
    state = environments.state()
    return {key: state[key] for key in _RANDOM if key in state}
