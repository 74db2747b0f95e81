"""How things are called on the pages: knobs by their signs, models and files without the folders that they lie in.

What programs read keeps keys and paths: CSV, JSON, the command line; links keep the keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from labcore.catalog.kinds import KINDS
from labcore.catalog.knob import LETTERS, Knob
from labcore.runs.paths import home, is_run_id, run_folder
from labcore.runs.rows import RunRow
from labcore.runs.spec import RunSpec, knobs_of
from labcore.runs.steering import shown

LONGEST = 24  # letters of a value in a label
# What of a setting is no knob.
FIELDS = {"kind": "Kind", "algorithm": "Algorithm", "task": "Task", "model": "Model", "steps": "Steps",
          "device": "Device", "threads": "Threads", "data": "File", "parent": "Fork of",
          "twin": "Its parent's random numbers", "moved by hand": "Moved by hand"}


@cache
def knobs() -> dict[str, Knob]:
    """Every knob by its key, as the first algorithm that has it declares it."""
    found: dict[str, Knob] = {}
    for kind in KINDS.values():
        for row in kind.algorithms.values():
            for task in kind.tasks.values():
                for knob in knobs_of(row, task):
                    found.setdefault(knob.key, knob)
    return found


def title(key: str, specs: Sequence[RunSpec] = ()) -> str:
    """What a setting is called where it stands for itself, by the knobs of `specs`; where these call it differently,
    by its sign alone.

    >>> title("beta"), title("data"), title("of no algorithm")
    ('KL price β', 'File', 'of no algorithm')
    """
    found = [knob for spec in specs for knob in knobs_of(spec.row, spec.task_row) if knob.key == key]
    found = found or [knobs()[key]] if key in knobs() else []
    if not found:
        return FIELDS.get(key, key)
    return found[0].title if len({knob.title for knob in found}) == 1 else found[0].name


def name(key: str) -> str:
    """What a setting is called beside its value.

    >>> name("clip_low"), name("group_size"), name("seed")
    ('ε_low', 'G', 'seed')
    """
    return knobs()[key].name if key in knobs() else key


def setting(key: str, value: Any, spec: RunSpec) -> str:
    """A setting of a run with its value, for a label: "β 0.2"."""
    if key == "twin":
        return f"{'the same' if value else 'fresh'} random numbers"
    own = next((knob.name for knob in knobs_of(spec.row, spec.task_row) if knob.key == key),
               FIELDS.get(key, key).lower())
    text = written(key, value)
    return f"{own} {text if len(text) <= LONGEST else f'{text[:LONGEST - 1]}…'}"


def written(key: str, value: Any) -> str:
    """The value of a setting as people write it.

    >>> written("beta", 7e-4), written("double", True), written("data", "/home/me/uploads/3fa8/pairs.jsonl")
    ('0.0007', 'on', 'pairs.jsonl')
    """
    if key == "model":
        return model(str(value))
    if key == "data":
        return Path(str(value)).name
    if key == "moved by hand":
        return worded(str(value))
    return "/".join(map(str, value)) if isinstance(value, list | tuple) else shown(value)


@cache
def _keys() -> re.Pattern[str]:
    """The keys of knobs that are no words of their own: what a sentence says by "ratio" need not be the knob."""
    foreign = [key for key in knobs() if "_" in key or f"\\{key}" in LETTERS]
    return re.compile(rf"(?<![\w/.-])({'|'.join(sorted(foreign, key=len, reverse=True))})(?![\w/-]|\.\w)(=?)")


def worded(sentence: str, own: Iterable[Knob] = ()) -> str:
    """What the lab says, with knobs called as on the page and the lab's own files without their folders. The knobs of
    the run that it is about are its `own`.

    >>> worded("beta is 20, outside its bounds: use a value from 0 to 10.")
    'KL price β is 20, outside its bounds: use a value from 0 to 10.'
    >>> worded("With beta=0.1: mini_batches 3 does not divide the batch of 32 prompts.")
    'With β=0.1: Mini-batches 3 does not divide the batch of 32 prompts.'
    """
    known = knobs() | {knob.key: knob for knob in own}
    inside = re.compile(rf"{re.escape(str(home()))}/[^\s'\",;:()]*[^\s'\",;:().]")
    sentence = inside.sub(lambda match: model(match[0]), sentence)
    return _keys().sub(lambda match: known[match[1]].name + "=" if match[2] else known[match[1]].title, sentence)


def message(run: RunRow) -> str:
    """What the run says of itself."""
    return worded(run.message, knobs_of(run.spec.row, run.spec.task_row))


# ---- models ------------------------------------------------------------------------------------------------------


def model(text: str) -> str:
    """A model of the lab's own by its run and step, or as a base; another folder by its name.

    >>> model("tiny"), model("Qwen/Qwen2.5-0.5B"), model("/home/me/models/mine")
    ('tiny', 'Qwen/Qwen2.5-0.5B', 'mine')
    """
    short = model_in_link(text)
    return (Path(short).name or short) if Path(short).is_absolute() else short


def model_in_link(text: str) -> str:
    """A model as a link names it: what the lab itself made without the folder that it lies in."""
    path = Path(text)
    try:
        inside = path.relative_to(home()).parts
    except ValueError:
        return text
    if len(inside) == 4 and inside[1::2] == ("checkpoints", "policy") and (step := _step(inside[2])) is not None:
        return f"{inside[0]}@{step}"
    return f"base:{inside[1]}" if len(inside) == 3 and inside[::2] == ("base", "model") else text


def _step(folder: str) -> int | None:
    number = folder.removeprefix("step-")
    return int(number) if number != folder and number.isdecimal() else None


def model_of_link(text: str) -> str:
    """What `model_in_link` wrote as a model that can be loaded, where it is there; any other text as it is."""
    if found := re.fullmatch(r"(\w[\w.-]*)@(\d{1,9})", text):
        folder = run_folder(found[1]) / "checkpoints" / f"step-{int(found[2]):06d}" / "policy"
        return str(folder) if is_run_id(found[1]) and folder.is_dir() else text
    if found := re.fullmatch(r"base:(\w+)", text):
        folder = home() / "base" / found[1] / "model"
        return str(folder) if folder.is_dir() else text
    return text
