"""Letting the policy of a checkpoint act in an environment of Gymnasium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from labcore.deep.evaluation import play
from labcore.deep.networks import ACTIVATIONS, MLP
from labcore.errors import LabError, first_line
from labcore.files import given


def load(folder: Path, best: bool = False) -> tuple[MLP, dict[str, Any]]:
    """The acting network of a `policy` folder, the newest or that of the best evaluation, and its `config.json`.

    Raises:
        LabError: the folder is none, or its files do not fit each other.
    """
    try:
        config = given.read_json(folder / "config.json", constants=True)
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
