"""Evaluate the greedy policy in environments of its own, with seeds that training never uses.

They are a function of the run's seed and the step, so nothing of an evaluation has to be saved.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from labcore.classic.deep.networks import ACTIVATIONS, MLP
from labcore.classic.deep.rollout import Choose, act, greedy
from labcore.classic.deep.session import DeepSession
from labcore.classic.envs.gym_env import make_environments
from labcore.classic.envs.gym_world import World
from labcore.errors import LabError, first_line
from labcore.runs.files import untrusted


@dataclass(frozen=True)
class Evaluation:
    """Returns and lengths of whole episodes; of the first one, for a picture of it, what it observed (the last
    observation included; where observations are states, the state's number), its rewards, and whether the time limit
    ended it.
    """

    returns: list[float]
    lengths: list[int]
    path: list[list[float]]
    rewards: list[float]
    truncated: bool

    @property
    def mean(self) -> float:
        return sum(self.returns) / len(self.returns)

    @property
    def shown(self) -> dict[str, Any]:
        """The data of its picture, JSON-clean."""
        return {"returns": self.returns, "path": self.path, "rewards": self.rewards, "truncated": self.truncated}

    @property
    def metrics(self) -> dict[str, float]:
        return {"eval_return": self.mean, "eval_return/min": min(self.returns),
                "eval_length": sum(self.lengths) / len(self.lengths)}


def evaluate(session: DeepSession) -> Evaluation:
    """Play the acting network's best actions in fresh environments."""
    _, seed = np.random.SeedSequence([session.spec.seed, session.step + 1]).generate_state(2)
    return play(session.acting, session.spec.task, int(session.knobs["eval_episodes"]), int(seed), session.device)


@torch.no_grad()
def play(network: nn.Module, task: str, episodes: int, seed: int, device: torch.device | str = "cpu",
         choose: Choose = greedy) -> Evaluation:
    """Whole episodes, one in each of `episodes` environments.

    Raises:
        LabError: the environment cannot be made.
    """
    worlds = make_environments(task, episodes, seed)
    generator = torch.Generator(device).manual_seed(seed)
    returns, lengths, rewards, truncated = np.zeros(episodes), np.zeros(episodes, np.int64), [], False
    path = [_shown(worlds.world, worlds.observations[0])]
    alive = np.ones(episodes, bool)
    while alive.any():
        logits = network(torch.as_tensor(worlds.observations, device=device))
        uniforms = logits[:, 0] if choose is greedy else torch.rand(episodes, generator=generator, device=device)
        step = act(worlds, choose(logits, uniforms))
        if alive[0]:
            path.append(_shown(worlds.world, step.next_observations[0]))
            rewards.append(float(step.rewards[0]))
            truncated = bool(step.truncated[0])
        returns += step.rewards * alive
        lengths += alive
        alive &= ~(step.terminated | step.truncated)
    return Evaluation(returns.tolist(), lengths.tolist(), path, rewards, truncated)


def _shown(world: World, observation: np.ndarray) -> list[float]:
    if world.states:
        return [int(observation.argmax())]
    numbers: list[float] = np.round(observation.astype(np.float64), 5).tolist()
    return numbers


# ---------------------------------------------------------------- player
# Letting the policy of a checkpoint act in an environment of Gymnasium.

def load(folder: Path, best: bool = False) -> tuple[MLP, dict[str, Any]]:
    """The acting network of a `policy` folder, the newest or that of the best evaluation, and its `config.json`.

    Raises:
        LabError: the folder is none, or its files do not fit each other.
    """
    try:
        config = untrusted.read_json(folder / "config.json", constants=True)
        network = MLP(config["sizes"], torch.Generator(), activation=config["activation"],
                      normed=config.get("normed", False))  # folders of before layer normalisation do not say it
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
    """Play whole episodes with the best actions. JSON-clean: returns, lengths, and `path`, what the first one observed.

    Raises:
        LabError: as `load`, or the environment cannot be made.
    """
    network, config = load(folder, best)
    played = play(network, config["environment"], episodes, seed)
    return {"environment": config["environment"], "step": config["best_step" if best else "step"],
            "returns": played.returns, "lengths": played.lengths, "path": played.path, "drawing": ""}
