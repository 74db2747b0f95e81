"""Evaluate the greedy policy in environments of its own, with seeds that training never uses.

The seeds are a function of the run's seed and the step, so an evaluation has no state to save.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from labcore.classic.deep.distributions import Acts, Choose
from labcore.classic.deep.networks import ACTIVATIONS, MLP, GaussianMLP
from labcore.classic.deep.rollout import act
from labcore.classic.deep.session import DeepSession
from labcore.classic.envs.gym_env import make_environments
from labcore.classic.envs.gym_world import World
from labcore.errors import LabError, first_line
from labcore.runs.files import untrusted


@dataclass(frozen=True)
class Evaluation:
    """The returns and lengths of whole episodes. For a picture of the first episode also its observations (including
    the last one; as state numbers where observations are states), its rewards, its actions, their standard deviations
    if they are continuous, and whether the time limit ended it."""

    returns: list[float]
    lengths: list[int]
    path: list[list[float]]
    rewards: list[float]
    truncated: bool
    actions: list[list[float]] = field(default_factory=list)
    stds: list[list[float]] = field(default_factory=list)

    @property
    def mean(self) -> float:
        return sum(self.returns) / len(self.returns)

    @property
    def shown(self) -> dict[str, Any]:
        """The data of its picture, JSON-clean."""
        found = {"returns": self.returns, "path": self.path, "rewards": self.rewards, "truncated": self.truncated}
        return found | ({"actions": self.actions, "stds": self.stds} if self.actions else {})

    @property
    def metrics(self) -> dict[str, float]:
        return {"eval_return": self.mean, "eval_return/min": min(self.returns),
                "eval_length": sum(self.lengths) / len(self.lengths)}


def evaluate(session: DeepSession) -> Evaluation:
    """Play the acting network's best actions in fresh environments."""
    _, seed = np.random.SeedSequence([session.spec.seed, session.step + 1]).generate_state(2)
    return play(session.acting, session.spec.task, int(session.knobs["eval_episodes"]), int(seed), session.device,
                arguments=str(session.knobs["env_args"]))


@torch.no_grad()
def play(network: Acts, task: str, episodes: int, seed: int, device: torch.device | str = "cpu",
         choose: Choose | None = None, arguments: str = "") -> Evaluation:
    """Play whole episodes, one in each of `episodes` environments. Without `choose`, the most likely actions are taken.
    Raises LabError if the environment cannot be made."""
    worlds = make_environments(task, episodes, seed, arguments)
    generator = torch.Generator(device).manual_seed(seed)
    returns, lengths, rewards, truncated = np.zeros(episodes), np.zeros(episodes, np.int64), [], False
    path, taken = [_shown(worlds.world, worlds.observations[0])], list[tuple[list[float], list[float]]]()
    alive = np.ones(episodes, bool)
    while alive.any():
        outputs = network(torch.as_tensor(worlds.observations, device=device))
        if choose is None:
            chosen = network.family.mode(outputs, outputs)
        else:
            chosen = choose(outputs, network.family.noise((episodes,), outputs.shape[-1], generator))
        step = act(worlds, chosen)
        if alive[0]:
            if worlds.world.continuous:
                taken.append((_numbers(chosen[0]), _numbers(outputs[0].chunk(2)[1].exp())))
            path.append(_shown(worlds.world, step.next_observations[0]))
            rewards.append(float(step.rewards[0]))
            truncated = bool(step.truncated[0])
        returns += step.rewards * alive
        lengths += alive
        alive &= ~(step.terminated | step.truncated)
    return Evaluation(returns.tolist(), lengths.tolist(), path, rewards, truncated,
                      [mean for mean, _ in taken], [std for _, std in taken])


def _numbers(row: Tensor) -> list[float]:
    numbers: list[float] = row.double().cpu().numpy().round(5).tolist()
    return numbers


def _shown(world: World, observation: np.ndarray) -> list[float]:
    if world.states:
        return [int(observation.argmax())]
    numbers: list[float] = np.round(observation.astype(np.float64), 5).tolist()
    return numbers


# ---------------------------------------------------------------- player
# Letting the policy of a checkpoint act in an environment of Gymnasium.

def load(folder: Path, best: bool = False) -> tuple[MLP, dict[str, Any]]:
    """The acting network of a `policy` folder, the newest or that of the best evaluation, and its `config.json`. Raises
    LabError if it is no such folder, or its files do not fit each other."""
    try:
        config = untrusted.read_json(folder / "config.json", constants=True)
        make = GaussianMLP if config.get("continuous") else MLP  # older folders have no such field
        network = make(config["sizes"], torch.Generator(), activation=config["activation"],
                       normed=config.get("normed", False), standardised=config.get("standardised", False))
        network.load_state_dict(load_file(folder / ("best.safetensors" if best else "model.safetensors")))
        for key, known in (("environment", config), ("step", config), ("best_step", config),
                           (config["activation"], ACTIVATIONS)):
            if key not in known:
                raise KeyError(key)
    except (LabError, OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise LabError(f"{folder} holds no policy that can be played ({first_line(error)}): give the id of a "
                       "CartPole run or the folder of its exported checkpoint.") from error
    return network, config


def replay(folder: Path, episodes: int, seed: int, best: bool = False) -> dict[str, Any]:
    """Play whole episodes with the best actions. JSON-clean: returns, lengths, and `path`, the observations of the
    first episode. Raises LabError as `load`, or if the environment cannot be made."""
    network, config = load(folder, best)
    played = play(network, config["environment"], episodes, seed, arguments=str(config.get("arguments", "")))
    return {"environment": config["environment"], "step": config["best_step" if best else "step"],
            "returns": played.returns, "lengths": played.lengths, "path": played.path, "drawing": ""}
