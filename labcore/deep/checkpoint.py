"""Networks and optimizers as named tensors and back, and the folder of a policy that acts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer


def tensors_of(networks: Mapping[str, nn.Module], optimizers: Mapping[str, Optimizer]) -> dict[str, Tensor]:
    """The weights and moments, each under a name of its own."""
    found = {f"network/{name}/{key}": value for name, network in networks.items()
             for key, value in network.state_dict().items()}
    return found | {f"optimizer/{name}/{index}/{key}": value for name, optimizer in optimizers.items()
                    for index, state in optimizer.state_dict()["state"].items() for key, value in state.items()}


def restore(networks: Mapping[str, nn.Module], optimizers: Mapping[str, Optimizer],
            tensors: Mapping[str, Tensor]) -> None:
    """The inverse of `tensors_of`."""
    for name, network in networks.items():
        network.load_state_dict(under(tensors, f"network/{name}/"))
    for name, optimizer in optimizers.items():
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in under(tensors, f"optimizer/{name}/").items():
            index, moment = key.split("/")
            state.setdefault(int(index), {})[moment] = value
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Those whose names begin with `prefix`, by the rest of their names."""
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies that can be written to a file, and that nobody changes any more."""
    return {key: value.detach().clone().contiguous() for key, value in tensors.items()}


def save_policy(folder: Path, newest: Mapping[str, Tensor], best: Mapping[str, Tensor], config: dict[str, Any]) -> None:
    """Write the acting network, as it is and as it was at its best evaluation, and what it was made for.

    `model.safetensors`, `best.safetensors` and `config.json` are all that `player.load` needs.
    """
    folder.mkdir()
    save_file(plain(newest), folder / "model.safetensors")
    save_file(plain(best), folder / "best.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
