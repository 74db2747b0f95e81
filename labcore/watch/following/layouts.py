"""The layouts of files that are followed, and the rule that assigns a file to a run: one row of `LAYOUTS` per layout.

The meaning of columns is defined elsewhere, in `labcore.runs.imports.layouts`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from labcore.errors import LabError
from labcore.runs.files.untrusted import NotJSON, json_of
from labcore.runs.imports import layouts as names
from labcore.runs.imports.delimited import head_of
from labcore.runs.imports.layouts import flat
from labcore.watch.following.event_files import EventFile
from labcore.watch.following.lines import Csv, JsonLines, Monitor
from labcore.watch.following.reader import Reader
from labcore.watch.following.step_files import PrimeEpisodes, PrimeRollouts, TrlCompletions, VerlGenerations
from labcore.watch.following.swift_completions import SwiftCompletions
from labcore.watch.following.trackio_store import MAGIC, TrackioStore
from labcore.watch.following.trainer_state import TrainerState
from labcore.watch.following.wandb_log import WandbLog

HELD_OUT = "validation"  # the run of completions that are not trained on
_FEW = 5  # rows of a log that may precede the first row with a step
_OF_A_CHART = "__MIN"  # how Weights & Biases ends the name of a column beside each curve of a chart
HEAD = 2**16  # bytes at the start of a file that decide its layout


@dataclass(frozen=True)
class Layout:
    """A kind of file. `path` matches the end of its path in the folder; `run` computes the path of its run from this
    match. `begins` decides from the first bytes whether a file has this layout; None if it cannot decide yet.

    `numbers`: it has the metrics of a run. If several files have the metrics of one run, the first layout in the table
    is followed, and the others are reported. `many`: all such files of a run are read as one log, ordered by time.
    `patience`: after this number of seconds without a better log in the folder, it is followed as a separate run.
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
    """Return a test that the first line of JSON has these members; it returns None if the line is incomplete."""
    def begins(head: bytes) -> bool | None:
        line, end, _ = head.lstrip().partition(b"\n")
        if not end and len(head) < HEAD:
            return None
        return line.startswith(b"{") and all(b'"%s"' % word in line for word in words)
    return begins


def _is(magic: bytes) -> Callable[[bytes], bool | None]:
    return lambda head: head.startswith(magic) if len(head) >= len(magic) else None


def _split(found: re.Match[str]) -> str:
    """Return the run of completions; completions that are not trained on are a separate run."""
    return found["run"] + (HELD_OUT if re.search("val|eval|test", found["split"]) else "")


def _own(found: re.Match[str]) -> str:
    """Return the run of a log: its folder if the file name is generic, otherwise a separate run."""
    return found["run"] if found["name"].lower() in _PLAIN else found["run"] + found["name"]


def _log(head: bytes) -> bool | None:
    """True if one of the first rows of JSON lines has a step; None if there are too few rows."""
    lines = head.split(b"\n")[:-1]
    return any(map(_placed, map(_columns, lines))) or (False if len(lines) > _FEW or len(head) == HEAD else None)


def _columns(line: bytes) -> list[str]:
    try:
        value = json_of(line, constants=True)
    except NotJSON:
        return []
    return [*flat(value)] if isinstance(value, dict) else []


def _table(head: bytes) -> bool | None:
    """True if the header of a CSV has a step, or if its rows count as steps; None if there is no header yet. A chart of
    Weights & Biases has a column for each run, so it is no log of one."""
    try:
        header = head_of("The file", head[:head.rfind(b"\n") + 1]).header
        return _placed(header) and not any(column.endswith(_OF_A_CHART) for column in header)
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
    # Its event files are in the folder `runs` itself.
    Layout("ms-swift", _path(r"logging\.jsonl"), JsonLines, begins=_with(b"global_step/max_steps")),
    # transformers creates the folder `runs/Nov27_02-13-56_host` in its folder of checkpoints.
    Layout("TensorBoard", _path(rf"(?P<dated>runs/(?:{_DATED}/)?)?[^/]*\.tfevents\.[^/]*"), EventFile, many=True),
    Layout("Stable-Baselines3", _path(r"progress\.json"), JsonLines),
    Layout("Hugging Face trainer", _path(r"(?:checkpoint-\d+/)?trainer_state\.json"), TrainerState, many=True),
    Layout("Stable-Baselines3's monitor", _path(r"(?:[^/]*\.)?monitor\.csv"), Monitor, many=True,
           run=lambda found: found["run"] + "episodes", patience=30.0),
    Layout("Trackio", _path(r"(?P<name>[^/]+)\.db"), TrackioStore, run=lambda found: found["run"] + found["name"],
           begins=_is(MAGIC)),
    Layout("TRL", _path(r"completions/completions_\d+\.parquet"), TrlCompletions, numbers=False),
    Layout("ms-swift", _path(r"completions\.jsonl"), SwiftCompletions, numbers=False,
           begins=_is(b'{"step": [')),
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
    """Return the layouts that match a file's path, each with the path of its run."""
    found = ((layout, layout.path.fullmatch(path)) for layout in LAYOUTS)
    return [(layout, layout.run(match).strip("/")) for layout, match in found if match]
