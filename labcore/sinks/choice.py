"""Choose the sinks of a run: those named with `--log`, and those of `RL_LAB_LOG`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from labcore.catalog.knob import suggestion
from labcore.errors import LabError, quoted
from labcore.sinks.sink import EventFile, Sink, Trackio, WeightsAndBiases
from labcore.store.rows import RunRow
from labcore.store.store import Store

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
