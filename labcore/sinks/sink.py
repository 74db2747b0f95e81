"""The contract of a sink, which receives a run's metrics live, and the available sinks."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from labcore.errors import LabError, quoted
from labcore.files.paths import made, run_folder
from labcore.sinks import event_file
from labcore.spec.model_names import name_of_model
from labcore.store.rows import RunRow

PROJECT = "rl-visual-lab"


class Sink(Protocol):
    """Takes the metrics of one run. `place` says where they are to be seen. Any of these may raise anything: see
    `live`."""

    place: str

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of a step; steps only grow."""
        ...

    def close(self, broken: bool) -> None:
        """Send what is not sent yet. `broken`: the run ended by a fault."""
        ...


class EventFile:
    """TensorBoard's: an event file in the run's folder, which grows step by step; a resumed run adds another one."""

    def __init__(self, run: RunRow):
        folder = made(run_folder(run.id) / "tensorboard")
        begun = time.time()
        self.place = f"tensorboard --logdir {folder}"
        self._file = (folder / f"events.out.tfevents.{int(begun)}.{run.id}.{run.step}").open("ab", buffering=0)
        self._file.write(event_file.head(begun))

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self._file.write(event_file.event(time.time(), step, metrics))

    def close(self, broken: bool) -> None:
        self._file.close()


class WeightsAndBiases:
    """A run of W&B, which a resumed run continues. Its settings and key are the environment's: WANDB_*."""

    def __init__(self, run: RunRow):
        self._run = _module("wandb").init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT, id=_id(run), name=run.id, config=config(run),
            resume="allow", dir=str(made(run_folder(run.id))))
        self.place = str(getattr(self._run, "url", "") or "the folder wandb of the run")

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self, broken: bool) -> None:
        self._run.finish(exit_code=int(broken))


class Trackio:
    """A run of Trackio, which a resumed run continues. Its settings are the environment's: TRACKIO_*."""

    def __init__(self, run: RunRow):
        project = os.environ.get("TRACKIO_PROJECT") or PROJECT
        self._run = _module("trackio").init(project=project, name=_id(run), config=config(run), resume="allow")
        self.place = f"trackio show --project {project}"

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self, broken: bool) -> None:
        self._run.finish()


def config(run: RunRow) -> dict[str, Any]:
    """The settings of a run as trackers show them; no path or address of this machine or its network."""
    spec = run.spec
    fields = {"kind": spec.kind, "algorithm": spec.algorithm, "task": spec.task, "seed": spec.seed, "steps": spec.steps,
              "model": name_of_model(spec.model), **({"mix": spec.mix} if spec.mix else {}), **spec.knobs}
    named = {key: Path(str(fields.get(key, ""))) for key in ("model", "reward_model")}
    fields.pop("judge_url", None)  # it may hold a key
    return fields | {key: path.name for key, path in named.items() if path.is_absolute()}


def _id(run: RunRow) -> str:
    """A name that no run of another lab has: several may share a project."""
    return f"{run.id}-{int(run.created)}"


def _module(name: str) -> Any:
    """A package that only who asks for it has.

    Raises:
        LabError: it is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise LabError(f"Logging to {quoted(name)} needs the package {name} ({error}): install it with pip install "
                       f"{name}.") from error
