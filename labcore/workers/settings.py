"""The settings of the lab: environment variables, each with its meaning and the value in use. No value is a secret."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from labcore.analysis.lessons import folders
from labcore.runs.files import storage
from labcore.runs.files.paths import home, read_only
from labcore.runs.spec import judge_address
from labcore.runs.store import dialects
from labcore.watch.converting import receiving
from labcore.workers import alerts, pictures, sinks
from labcore.workers.executors import choice

NOT_SET = "not set"


@dataclass(frozen=True)
class Setting:
    """The environment variable `name`: what it does, and a function that says the value in use."""

    name: str
    meaning: str
    value: Callable[[], str]


def _text(name: str, default: str = NOT_SET) -> Callable[[], str]:
    """A function that returns the variable's value."""
    return lambda: os.environ.get(name, "").strip() or default


def _address(name: str) -> Callable[[], str]:
    """A function that returns a URL without any key or password in it."""
    return lambda: storage.shown(os.environ.get(name, "").strip()) or NOT_SET


SETTINGS = (
    Setting("RL_LAB_HOME", "Folder of runs, checkpoints, base models, uploads and imports", lambda: str(home())),
    Setting("RL_LAB_STORE", "The database: curves, events, notes", lambda: dialects.shown(dialects.store_url())),
    Setting(storage.VARIABLE, "Shared storage for checkpoints and uploads: an object store or a shared folder",
            _address(storage.VARIABLE)),
    Setting(storage.CACHE_VARIABLE, "With shared storage: the GB of RL_LAB_HOME above which published, unused files "
                                    "are deleted there", _text(storage.CACHE_VARIABLE, f"{storage.CACHE_GB:g}")),
    Setting(pictures.SETTING, "GB of completions that a run keeps; above, completions of every second step are deleted",
            _text(pictures.SETTING, f"{pictures.USUAL_GB:g}")),
    *(Setting(*row) for row in choice.SETTINGS),
    Setting("RL_LAB_READ_ONLY", "1: the lab is shared for reading; it shows everything and changes nothing",
            lambda: "1" if read_only() else NOT_SET),
    Setting("RL_LAB_VISITORS", "Number of browser tabs that can be open at the same time", _text("RL_LAB_VISITORS")),
    Setting("RL_LAB_FRAMED_BY", "Addresses of sites that may show the lab in a frame, separated by spaces",
            _text("RL_LAB_FRAMED_BY")),
    Setting(sinks.SETTING, "Tools that also receive the metrics of all runs, separated by commas: tensorboard, wandb, "
                           "trackio", _text(sinks.SETTING)),
    Setting(receiving.TOKEN, "Token that trainers on other machines need to send runs to this lab; it is never shown",
            lambda: "set" if os.environ.get(receiving.TOKEN, "").strip() else NOT_SET),
    Setting("RL_LAB_WATCH_URL", "On the trainer's machine: the address of the lab to send runs to",
            _address("RL_LAB_WATCH_URL")),
    Setting("RL_LAB_SPOOL", "On the trainer's machine: the folder of lines that were not sent yet",
            _text("RL_LAB_SPOOL", "~/.cache/rl-lab")),
    Setting(alerts.SETTING, "Programs, addresses or files that receive the doctor's findings",
            lambda: alerts.shown() or NOT_SET),
    Setting(folders.VARIABLE, "A folder with your own lessons", _text(folders.VARIABLE)),
    Setting(judge_address.URL, "Address of a judge that runs may use", _address(judge_address.URL)),
    Setting(judge_address.KEY, "API key of the judge; it is never shown",
            lambda: "set" if os.environ.get(judge_address.KEY, "").strip() else NOT_SET),
)
