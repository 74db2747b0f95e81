"""A run of a deep classic method: its networks, optimizers, environments, random numbers and counters.

Everything that a run's future depends on lives here, so saving a session at a record and loading it again continues
the run bit for bit. Left out: the clock, the disk layout and the controls, which belong to the worker.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labcore.deep import checkpoint, fork
from labcore.deep.credit import Lesson, ratios, scatter
from labcore.deep.evaluation import evaluate
from labcore.deep.methods import METHODS, Method
from labcore.deep.networks import MLP
from labcore.deep.replay import Replay
from labcore.deep.rollout import Episodes, spread
from labcore.device import pick_device
from labcore.envs.cartpole import WORLD, TorchCartPole
from labcore.envs.gym_env import Environments, make_environments
from labcore.envs.gym_world import World
from labcore.errors import Diverged
from labcore.spec.record import Record
from labcore.spec.run_spec import RunSpec

SHOWN = 200  # episodes of a step that are kept one by one


@dataclass
class Session:
    """See the module. `knobs` is changed in place while the run goes on; the counters count up.

    `numbers` is what a method keeps between steps (the adaptive factor of β); `best` the acting network's weights at
    the best greedy evaluation so far.
    """

    spec: RunSpec
    knobs: dict[str, Any]
    device: torch.device
    networks: dict[str, nn.Module]
    optimizers: dict[str, torch.optim.Optimizer]
    environments: Environments | TorchCartPole
    generator: torch.Generator
    episodes: Episodes
    replay: Replay | None = None
    step: int = 0
    updates: int = 0
    env_steps: int = 0
    numbers: dict[str, float] = field(default_factory=dict)
    best: dict[str, Tensor] = field(default_factory=dict)
    best_return: float | None = None
    best_step: int = 0
    finished_because: str = ""

    @property
    def method(self) -> Method:
        return METHODS[self.spec.algorithm]

    @property
    def acting(self) -> nn.Module:
        """The network whose outputs choose actions: logits, or Q values."""
        return self.networks[self.method.acts]

    @property
    def policy(self) -> nn.Module:
        return self.networks["policy"]

    @property
    def critic(self) -> nn.Module:
        return self.networks["critic"]

    @property
    def remaining(self) -> float:
        """1 at the first step, falling to 0 after the last; always 1 where nothing is annealed."""
        return 1 - self.step / self.spec.steps if self.knobs["anneal"] else 1.0

    @staticmethod
    def start(spec: RunSpec, base_folder: Path | None = None, resume: Path | None = None) -> Session:
        """Build what `spec` needs; where `resume` is given, from that checkpoint. There is no base to start from.

        Raises:
            LabError: the environment, the device or the checkpoint cannot be used.
        """
        # These networks are so small that a GPU pays only with thousands of environments: it has to be asked for.
        device = pick_device("cpu" if spec.device == "auto" else spec.device)
        knobs, method = dict(spec.knobs), METHODS[spec.algorithm]
        count = int(knobs["environments"])
        # Streams of their own: weights, worlds and actions from one seed must not share their numbers.
        weights, worlds, actions = (int(word) for word in np.random.SeedSequence(spec.seed).generate_state(3))
        on_device = device.type != "cpu" and spec.task == WORLD.env_id
        environments = (TorchCartPole(count, worlds, device) if on_device
                        else make_environments(spec.task, count, worlds))
        networks = _networks(spec, environments.world, torch.Generator().manual_seed(weights), device)
        session = Session(spec, knobs, device, networks,
                          {name: make(networks[name]) for name, make in method.optimizers.items()}, environments,
                          torch.Generator(device).manual_seed(actions), Episodes.none(count))
        if method.replay:
            world = environments.world
            session.replay = Replay(int(knobs["buffer_size"]), world.observation_size, device, world.states)
        if resume:
            checkpoint.load(session, resume)
        return session

    def fork(self, spec: RunSpec) -> Session:
        """A session of the fork `spec` of this run, where this one is; see `fork.fork`."""
        return fork.fork(self, Session.start(spec))

    def run(self) -> Iterator[Record]:
        """Train until `spec.steps`, a Record per step."""
        yield from self.method.run(self)
        self.finished_because = self.finished_because or f"all {self.spec.steps} steps done"

    def save(self, folder: Path) -> None:
        """Write a complete checkpoint into `folder`: safetensors and JSON only."""
        checkpoint.save(self, folder)

    def optimise(self, name: str, learning_rate: float, loss: Tensor) -> float:
        """Take one clipped step of network `name` down the gradient of `loss`. Returns its norm before the clip.

        Raises:
            Diverged: the loss or the norm is not finite; the weights are left as they were.
        """
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
        """Raises Diverged where `value` is not a number one can go on from."""
        if not isfinite(value):
            raise Diverged(self.step + 1, what)

    def record(self, metrics: Mapping[str, float], line: dict[str, Any] | None = None,
               data: Lesson | None = None, clip: tuple[float, float] | None = None) -> Record:
        """Close a step: count it, evaluate if it is time, and put together what there is to say of it.

        `data` is the batch that the critic learnt from, where there is a critic; `clip` the annealed clip range that
        its updates had, where they had one.
        """
        self.step += 1
        ended = self.episodes.take()
        own: dict[str, float] = {"updates": self.updates, "episodes": len(ended)}
        if ended:
            own["episode_return"] = sum(episode["return"] for episode in ended) / len(ended)
            own["episode_length"] = sum(episode["length"] for episode in ended) / len(ended)
        samples: dict[str, Any] = {"step": self.step, "episodes": spread(ended, SHOWN), "ended": len(ended)}
        if self.step == 1 or self.step % int(self.knobs["eval_every"]) == 0 or self.step == self.spec.steps:
            evaluation = evaluate(self)
            own |= evaluation.metrics
            samples["evaluation"] = evaluation.shown
            if data is not None:
                samples |= {"scatter": scatter(data), "ratios": ratios(self, data)}
                samples |= {"clip": list(clip)} if clip else {}
            if self.best_return is None or evaluation.mean >= self.best_return:
                self.best_return, self.best_step = evaluation.mean, self.step
                self.best = {name: value.clone() for name, value in self.acting.state_dict().items()}
        samples["best"] = {"step": self.best_step, "return": self.best_return}
        kept = {key: float(value) for key, value in {**own, **metrics}.items() if isfinite(value)}
        return Record(self.step, 0, kept, self.env_steps, samples if "evaluation" in samples or ended else None, line)


def _networks(spec: RunSpec, world: World, generator: torch.Generator, device: torch.device) -> dict[str, nn.Module]:
    """The networks that the method's loop asks for: a Q network and its target, or a policy and a critic."""
    method = METHODS[spec.algorithm]
    layers = (world.observation_size, *[int(spec.knobs["hidden"])] * int(spec.knobs["layers"]))
    if method.replay:
        # As they are, CartPole's angles of 0.2 are lost beside its speeds: Q is nearly linear in them, and its greedy
        # policy lets the cart drift away for tens of thousands of steps.
        made = {"q": MLP((*layers, world.actions), generator, None, method.activation, world.scale)}
        made["target"] = copy.deepcopy(made["q"]).requires_grad_(False)
    else:
        made = {"policy": MLP((*layers, world.actions), generator, 0.01, method.activation),
                "critic": MLP((*layers, 1), generator, 1.0, method.activation)}
    return {name: network.to(device) for name, network in made.items()}
