"""A session as a folder and back: tensors in safetensors, all else in JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from labcore.errors import LabError

if TYPE_CHECKING:
    from labcore.deep.session import Session


def tensors_of(session: Session) -> dict[str, Tensor]:
    """Every tensor of a session under a name of its own, copied."""
    found: dict[str, Tensor] = {"generator": session.generator.get_state()}
    for name, network in session.networks.items():
        found |= {f"network/{name}/{key}": value for key, value in network.state_dict().items()}
    for name, optimizer in session.optimizers.items():
        for index, state in optimizer.state_dict()["state"].items():
            found |= {f"optimizer/{name}/{index}/{key}": value for key, value in state.items()}
    found |= {f"best/{key}": value for key, value in session.best.items()}
    if session.replay is not None:
        found |= {f"replay/{key}": value for key, value in session.replay.tensors().items()}
    return {key: value.detach().clone().contiguous() for key, value in found.items()}


def values_of(session: Session) -> dict[str, Any]:
    """Everything else of a session, JSON-clean."""
    episodes = session.episodes
    return {"step": session.step, "updates": session.updates, "env_steps": session.env_steps, "knobs": session.knobs,
            "numbers": session.numbers, "best_return": session.best_return, "best_step": session.best_step,
            "finished_because": session.finished_because, "environments": session.environments.state(),
            "returns": episodes.returns.tolist(), "lengths": episodes.lengths.tolist()}


def save(session: Session, folder: Path) -> None:
    """Write a complete checkpoint into the folder; `policy` in it holds what it takes to act."""
    save_file(tensors_of(session), folder / "tensors.safetensors")
    save_policy(session, folder / "policy")
    (folder / "state.json").write_text(json.dumps(values_of(session)), encoding="utf-8")


def save_policy(session: Session, folder: Path) -> None:
    """Write the acting network, as it is and as it was at its best evaluation, and what it was made for.

    `model.safetensors`, `best.safetensors` and `config.json` are all that `player.load` needs.
    """
    folder.mkdir()
    weights = session.acting.state_dict()
    for name, state in (("model", weights), ("best", session.best or weights)):
        save_file({key: value.detach().clone().contiguous() for key, value in state.items()},
                  folder / f"{name}.safetensors")
    config = {"kind": session.spec.kind, "algorithm": session.spec.algorithm, "environment": session.spec.task,
              "sizes": session.acting.sizes, "activation": session.acting.activation, "outputs": session.method.acts,
              "step": session.step, "best_step": session.best_step, "best_return": session.best_return}
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")


def load(session: Session, folder: Path) -> None:
    """Put a session of the same spec where a checkpoint of it was.

    Raises:
        LabError: the checkpoint cannot be read or is of another spec; the session must not be used.
    """
    try:
        values = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        tensors = load_file(folder / "tensors.safetensors")
        restore(session, tensors, values)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".:")
        raise LabError(f"The checkpoint {folder.name} cannot be read ({reason}): resume from an earlier one, or start "
                       "the run again.") from error


def restore(session: Session, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
    """The inverse of `tensors_of` and `values_of`."""
    def under(prefix: str) -> dict[str, Tensor]:
        return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}

    session.generator.set_state(tensors["generator"])
    for name, network in session.networks.items():
        network.load_state_dict(under(f"network/{name}/"))
    for name, optimizer in session.optimizers.items():
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in under(f"optimizer/{name}/").items():
            index, moment = key.split("/")
            state.setdefault(int(index), {})[moment] = value
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    session.best = {key: value.to(session.device) for key, value in under("best/").items()}
    if session.replay is not None:
        session.replay.restore(under("replay/"))
    session.environments.load_state(values["environments"])
    session.knobs.update(values["knobs"])
    for name in ("step", "updates", "env_steps", "numbers", "best_return", "best_step", "finished_because"):
        setattr(session, name, values[name])
    session.episodes.returns[:] = values["returns"]
    session.episodes.lengths[:] = np.array(values["lengths"], np.int64)
