"""The contract of a sink, which receives a run's metrics live, and the available sinks."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from labcore.catalog.knob import suggestion
from labcore.errors import LabError, first_line, quoted
from labcore.runs.files import event_file
from labcore.runs.files.paths import made, run_folder
from labcore.runs.spec.model_names import name_of_model
from labcore.runs.spec.session import Record
from labcore.runs.store.rows import RunRow
from labcore.runs.store.store import Store

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
    named = {key: Path(str(fields.get(key, ""))) for key in ("model", "reward_model", "teacher")}
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


# ---------------------------------------------------------------- choice
# Choose the sinks of a run: those named with `--log`, and those of `RL_LAB_LOG`.

SETTING = "RL_LAB_LOG"
ASKED = "log"  # the kind of event that asks for a sink


@dataclass(frozen=True)
class Choice:
    """A sink. `package` is what it needs; empty: nothing."""

    label: str
    open: Callable[[RunRow], Sink]
    package: str = ""


SINKS: Mapping[str, Choice] = {
    "tensorboard": Choice("TensorBoard", EventFile), "wandb": Choice("W&B", WeightsAndBiases, "wandb"),
    "trackio": Choice("Trackio", Trackio, "trackio")}


def of_setting() -> list[str]:
    """The sinks of all runs of this lab, by `RL_LAB_LOG`: names with commas between. Raises LabError as `checked`."""
    return checked(re.split(r"[,\s]+", os.environ.get(SETTING, "").strip()), SETTING)


def checked(names: Iterable[str], where: str = "--log") -> list[str]:
    """These names, each once; empty ones are left out. `where` is what says them.

    Raises:
        LabError: there is no such sink, or its package is not installed.
    """
    found = list(dict.fromkeys(filter(None, names)))
    for name in found:
        if name not in SINKS:
            raise LabError(f"{where} cannot be {quoted(name)}: {suggestion(name, list(SINKS))}")
        if (package := SINKS[name].package) and find_spec(package) is None:
            raise LabError(f"{where} {name} needs the package {package}: install it with pip install {package}, or "
                           f"leave {name} out.")
    return found


def ask(store: Store, run_id: str, names: Iterable[str]) -> None:
    """Have the metrics of a run go to these sinks as well, from its next start on. Raises LabError as `checked`."""
    if wanted := checked(names):
        step, there = store.run(run_id).step, asked(store, run_id)
        for name in wanted:
            if name not in there:
                store.log(run_id, ASKED, {"to": name}, step)


def asked(store: Store, run_id: str) -> list[str]:
    """The sinks that were asked for a run so far, in this order; a resumed run goes on with them."""
    named = [str(event.payload["to"]) for event in store.events_after(run_id) if event.kind == ASKED]
    return [name for name in dict.fromkeys(named) if name in SINKS]


# ---------------------------------------------------------------- live
# Send the metrics of a training run to its sinks. A sink that raises is reported once and then dropped; the run
# continues.

class Live:
    """See the module. What was logged before a resume is not sent again."""

    def __init__(self, store: Store, row: RunRow):
        self._store, self._run_id, self._step = store, row.id, row.step
        self._sinks: dict[str, Sink] = {}
        for name in asked(store, row.id):
            if (sink := self._tried(name, partial(SINKS[name].open, row))) is not None:
                self._sinks[name] = sink
                self._note(f"Metrics are also sent to {SINKS[name].label}: {sink.place}")

    def write(self, record: Record) -> None:
        """Send the metrics of a step that is committed."""
        if record.step <= self._step:
            return
        self._step = record.step
        for name, sink in [*self._sinks.items()]:
            self._tried(name, partial(sink.write, record.step, record.metrics))

    def close(self, broken: bool) -> None:
        """Send the rest, and whether the run ended by a fault."""
        for name, sink in [*self._sinks.items()]:
            self._tried(name, partial(sink.close, broken))
        self._sinks.clear()

    def _tried(self, name: str, do: Callable[[], Any]) -> Any:
        """The result of `do`; None where it raises, and then its sink gets nothing more."""
        try:
            return do()
        except Exception as error:  # of a library that the lab does not know
            self._sinks.pop(name, None)
            reason = first_line(error).rstrip(".")
            self._note(f"Logging to {SINKS[name].label} stopped ({reason}): the run continues, and its metrics "
                       "stay in the lab.")
            return None

    def _note(self, text: str) -> None:
        self._store.log(self._run_id, "note", {"text": text}, self._step)
