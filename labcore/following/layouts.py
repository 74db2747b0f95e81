"""Which files of a folder are followed, and which of them are of one run: one row of `LAYOUTS` per layout.

What the columns in a file mean is no matter of this table: `labcore.runs.imports.layouts` knows the names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from labcore.errors import LabError
from labcore.following.event_files import EventFile
from labcore.following.lines import Csv, JsonLines, Monitor
from labcore.following.reader import Reader
from labcore.following.step_files import PrimeEpisodes, PrimeRollouts, TrlCompletions, VerlGenerations
from labcore.following.trackio_store import MAGIC, TrackioStore
from labcore.following.trainer_state import TrainerState
from labcore.following.wandb_log import WandbLog
from labcore.runs.files.untrusted import NotJSON, json_of
from labcore.runs.imports import layouts as names
from labcore.runs.imports.delimited import head_of
from labcore.runs.imports.layouts import flat

HELD_OUT = "validation"  # the run of completions on which nothing is trained
_FEW = 5  # rows of a log that may come before the first one with a step
HEAD = 2**16  # bytes at the start of a file that say what it is


@dataclass(frozen=True)
class Layout:
    """A kind of file. `path` matches the end of its path in the folder; `run` makes of that match the path of the run
    that it belongs to. `begins` says by the first bytes whether it is one; None where that cannot be said yet.

    `numbers`: it has the numbers of a run. Of files with numbers of one run the layout that stands first in the table
    is followed, and the others are said. `many`: all such files of a run are read as one, in the order of their times.
    `patience`: it is followed where the folder has no better log after so many seconds, as a run of its own.
    """

    tool: str
    path: re.Pattern[str]
    reader: type[Reader]
    run: Callable[[re.Match[str]], str] = lambda found: found["run"]
    begins: Callable[[bytes], bool | None] = lambda head: True if head else None
    numbers: bool = True
    many: bool = False
    patience: float = 0.0


def _path(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?P<run>(?:.*?/)??){pattern}", re.DOTALL)


def _with(*words: bytes) -> Callable[[bytes], bool | None]:
    """True if the first line of JSON has these members; None where it is not whole."""
    def begins(head: bytes) -> bool | None:
        line, end, _ = head.lstrip().partition(b"\n")
        if not end and len(head) < HEAD:
            return None
        return line.startswith(b"{") and all(b'"%s"' % word in line for word in words)
    return begins


def _is(magic: bytes) -> Callable[[bytes], bool | None]:
    return lambda head: head.startswith(magic) if len(head) >= len(magic) else None


def _split(found: re.Match[str]) -> str:
    """The run of completions: those on which nothing is trained are one of their own."""
    return found["run"] + (HELD_OUT if re.search("val|eval|test", found["split"]) else "")


def _own(found: re.Match[str]) -> str:
    """A log whose name says nothing is that of its folder, any other one a run of its own."""
    return found["run"] if found["name"].lower() in _PLAIN else found["run"] + found["name"]


def _log(head: bytes) -> bool | None:
    """True if one of the first rows of JSON lines has a step; None where there are few rows yet."""
    lines = head.split(b"\n")[:-1]
    return any(map(_placed, map(_columns, lines))) or (False if len(lines) > _FEW or len(head) == HEAD else None)


def _columns(line: bytes) -> list[str]:
    try:
        value = json_of(line, constants=True)
    except NotJSON:
        return []
    return [*flat(value)] if isinstance(value, dict) else []


def _table(head: bytes) -> bool | None:
    """True if the header of a CSV has a step, or its rows are counted; None where there is none yet."""
    try:
        return _placed(head_of("The file", head[:head.rfind(b"\n") + 1]).header)
    except UnicodeDecodeError:
        return False
    except LabError:
        return None


def _placed(columns: Sequence[str]) -> bool:
    layout = names.layout_of(columns)
    return bool(layout.row) or any(names.is_axis(axis, column) for axis in layout.axes for column in columns)


_PLAIN = ("metrics", "progress", "log", "logs", "history", "train", "train_log", "training", "wandb-history")
_DATED = r"[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d_[^/]+"
LAYOUTS = (
    Layout("Weights & Biases", _path(r"(?:wandb/)?(?P<name>(?:offline-)?run-[^/]+)/run-[^/]+\.wandb"), WandbLog,
           run=lambda found: found["run"] + found["name"], begins=_is(b":W&B")),
    Layout("Stable-Baselines3", _path(r"progress\.csv"), Csv),
    # The folder `runs/Nov27_02-13-56_host` is transformers' own, in that of its checkpoints.
    Layout("TensorBoard", _path(rf"(?P<dated>runs/{_DATED}/)?[^/]*\.tfevents\.[^/]*"), EventFile, many=True),
    Layout("Stable-Baselines3", _path(r"progress\.json"), JsonLines),
    Layout("Hugging Face trainer", _path(r"(?:checkpoint-\d+/)?trainer_state\.json"), TrainerState, many=True),
    Layout("Stable-Baselines3's monitor", _path(r"(?:[^/]*\.)?monitor\.csv"), Monitor, many=True,
           run=lambda found: found["run"] + "episodes", patience=30.0),
    Layout("Trackio", _path(r"(?P<name>[^/]+)\.db"), TrackioStore, run=lambda found: found["run"] + found["name"],
           begins=_is(MAGIC)),
    Layout("TRL", _path(r"completions/completions_\d+\.parquet"), TrlCompletions, numbers=False),
    Layout("prime-rl", _path(r"rollouts/step_\d+/(?P<split>train|eval)/(?:all|effective)/traces\.jsonl"), PrimeEpisodes,
           run=_split, numbers=False),
    Layout("prime-rl", _path(r"rollouts/step_\d+/(?P<split>train|eval)_rollouts\.jsonl"), PrimeRollouts, run=_split,
           numbers=False),
    Layout("verl", _path(r"(?P<split>(?:[^/]+/)?)\d+\.jsonl"), VerlGenerations, run=_split, numbers=False,
           begins=_with(b"input", b"output", b"score")),
    Layout("", _path(r"(?P<name>[^/]+)\.(?:jsonl|ndjson)"), JsonLines, run=_own, begins=_log),
    Layout("", _path(r"(?P<name>[^/]+)\.(?:csv|tsv)"), Csv, run=_own, begins=_table),
)


def candidates(path: str) -> list[tuple[Layout, str]]:
    """The layouts that a file may have by its path in the folder, and the path of its run in each."""
    found = ((layout, layout.path.fullmatch(path)) for layout in LAYOUTS)
    return [(layout, layout.run(match).strip("/")) for layout, match in found if match]
