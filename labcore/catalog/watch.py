"""The tables of watched runs: the lab's rows of language models, and two rows for all other algorithms.

A row defines the name of a run's algorithm and the order of its charts. Every chart whose metrics the trainer sends is
shown. The knobs are those of the lab's row, but a watched run has only the knobs that the trainer sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from labcore.catalog.algorithm import Algorithm
from labcore.catalog.knob import Value
from labcore.catalog.llm import algorithms
from labcore.catalog.panels import PANELS
from labcore.catalog.task import Task

OTHER, CONTROL = "other", "control"  # rows of runs with an unknown algorithm
TASK = "run"
SETTINGS = ("algorithm", "trainer", "algo", "algorithm.adv_estimator", "advantage_estimator")  # where tools say it
TWIN = "twin_of"  # a handed-over script's setting: the run of the lab that it was made of
LONGEST = 40  # letters of its name
_UNSAFE = re.compile(r"[^\w .,+()'-]")  # what the name of a mix has not either
_CONTROL = ("episode_return", "eval_return", "episode_length", "loss", "env_speed")


_KNOBS = tuple({knob.key: knob for row in algorithms.ALGORITHMS.values() for knob in row.knobs}.values())


def _panels(first: tuple[str, ...]) -> tuple[str, ...]:
    return (*first, *(key for key in PANELS if key not in first))


def _generic(key: str, label: str, first: tuple[str, ...]) -> Algorithm:
    return Algorithm(key, label, "elsewhere", summary="Trained outside the lab with an unknown algorithm.", latex="",
                     watch="The charts show the metrics that the trainer sends.", paper="", knobs=_KNOBS,
                     models=("policy",), panels=_panels(first))


ALGORITHMS: dict[str, Algorithm] = {
    OTHER: _generic(OTHER, "Other", ("reward", "loss", "kl", "entropy")),
    CONTROL: _generic(CONTROL, "Reinforcement learning", _CONTROL),
    **{row.key: replace(row, panels=_panels(row.panels)) for row in algorithms.ALGORITHMS.values()},
}
TASKS: dict[str, Task] = {TASK: Task(TASK, "Run", "Trained outside the lab.", "", (
    "elsewhere", "online", "preference", "reward_model", "sft"), goal={})}


def row_of(name: str, tool: str = "") -> str:
    """Return the key of an algorithm's row for the trainer's name of the algorithm or of its class.

    >>> row_of("GRPOTrainer"), row_of("reinforce_plus_plus", "verl"), row_of("PPO", "Stable-Baselines3"), row_of("mine")
    ('grpo', 'reinforce_pp', 'control', 'other')
    """
    if tool.lower().startswith(("stable-baselines", "sb3", "cleanrl")):
        return CONTROL
    plain = "".join(letter for letter in name.lower() if letter.isalnum())
    plain = plain.removesuffix("config").removesuffix("trainer")
    return next((key for key, row in ALGORITHMS.items()
                 if plain and plain in (key.replace("_", ""), row.label.lower().replace(" ", ""))),
                _ALIASES.get(plain, OTHER))


def algorithm_of(settings: Mapping[str, Value]) -> str:
    """The tool's name of its algorithm; empty where it has not said it."""
    return next((str(settings[name]) for name in SETTINGS if settings.get(name)), "")


def named(row: Algorithm, tool: str, settings: Mapping[str, Value]) -> Algorithm:
    """The row of a run; of an algorithm that the lab does not know under the tool's name of it, or that of the tool.

    >>> named(ALGORITHMS[CONTROL], "Stable-Baselines3", {"algorithm": "SAC"}).label
    'SAC'
    >>> named(ALGORITHMS[CONTROL], "Stable-Baselines3", {}).label, named(ALGORITHMS[OTHER], "", {}).label
    ('Stable-Baselines3', 'Other')
    """
    if row.key not in (OTHER, CONTROL):
        return row
    said = _UNSAFE.sub("", (algorithm_of(settings) or tool).rpartition("/")[2]).strip()  # of a path its end
    return replace(row, label=said[:LONGEST]) if said else row


_ALIASES = {"reinforceplusplus": "reinforce_pp", "reinforcepp": "reinforce_pp", "reward": "reward_model", "gae": "ppo"}
