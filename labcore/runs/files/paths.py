"""The folders of the lab, the number of runs at once, and whether this lab may write."""

from __future__ import annotations

import os
import re
from pathlib import Path

from labcore.errors import LabError, os_reason, quoted

# What else lies in the lab's folder, and how the names of imported metrics and of sweeps begin: no run is called so.
OWN_LESSONS = "lessons"  # a teacher's
FOLLOWING = "following"  # read positions in the files of other trainers
RESERVED = frozenset({"base", FOLLOWING, "hub", "imported", "jobs", "labels", OWN_LESSONS, "rewards", "supervisor.log",
                      "uploads", "votes", "watched"})
IMPORT_PREFIX = "imported-"
MIXES = "mixes.json"  # the user's saved mixes of choices
LESSONS = "lessons.json"  # predictions and verdicts of the lessons
DRAFTS = "lesson-drafts.json"  # lessons that are being written
ENVIRONMENTS = "environments.json"  # modules of the owner's own that may be imported
JUDGEMENTS = "judgements.db"  # the replies of judges
RESERVED_PREFIXES = (IMPORT_PREFIX, "sweep-", "lab.db", MIXES, LESSONS, DRAFTS, JUDGEMENTS, ENVIRONMENTS)
SHARED = "This lab is shared for reading: nothing can be started or changed here."
# The names in a run's folder. START: what a fork starts from, until it has a checkpoint of its own. BEST: which
# checkpoint is the best by the held-out rows. Each worker of a run adds to VERSIONS and LOG.
CHECKPOINTS, START, BEST, VERSIONS, LOG = "checkpoints", "start", "best.json", "versions.json", "worker.log"
PICTURES = ("samples", "lines")
STEP = r"step-\d{6,}"  # the name of a checkpoint's folder
NAME_BYTES, PATH_BYTES = 255, 4000  # limits of the usual disks
_ID = re.compile(r"\w(?:[\w.-]*[\w-])?")


def home() -> Path:
    """The lab's folder: `RL_LAB_HOME`, else `runs` in the working directory. Absolute; not made here."""
    return Path(os.environ.get("RL_LAB_HOME") or "runs").absolute()


def path_of(word: str | Path, folder: Path | None = None) -> Path:
    """The path that a user's word means, or with `folder` the path of the file of this name in it. Raises LabError if
    it cannot be a path."""
    if not can_be_path(word):
        raise LabError(f"{quoted(str(word))} cannot be the name of a file or a folder (it is too long, or holds a "
                       "character that no name can): check it.")
    return (folder or Path()) / word


def can_be_path(word: str | Path) -> bool:
    """True if the usual disks take a file of that name."""
    try:
        parts = [part.encode() for part in Path(word).parts]
    except UnicodeEncodeError:  # half a character, or bytes that are no UTF-8: neither a spec nor the store holds them
        return False
    return (all(len(part) <= NAME_BYTES and b"\0" not in part for part in parts)
            and sum(map(len, parts)) + len(parts) <= PATH_BYTES)


def is_id(name: object) -> bool:
    """True if `name` can be an id, which is the name of one folder: letters, digits, `_`, `-`, and dots inside, as long
    as disks allow.

    Every id is checked by this function before it becomes a path. So an id cannot lead out of its folder, whether it
    was read from a store, a capsule, a link, a manifest or the command line.

    >>> [is_id(name) for name in ("grpo-sort-ab12", "..", "../a", "/a", ".hidden", "a.", "")]
    [True, False, False, False, False, False, False]
    """
    return isinstance(name, str) and _ID.fullmatch(name) is not None and len(name.encode()) <= NAME_BYTES


def named(name: str, folder: Path) -> Path:
    """The folder of the id `name` in `folder`. Raises LabError where `name` cannot be an id."""
    if not is_id(name):
        raise LabError(f"{quoted(name)} cannot be an id, which has letters, digits, _, - and dots inside: list the "
                       "runs to see their ids.")
    return folder / name


def run_folder(run_id: str) -> Path:
    """The folder in which run `run_id` keeps its spec, checkpoints, samples, lines and log. Raises LabError as
    `named`."""
    return named(run_id, home())


def is_checkpoint(name: str) -> bool:
    """True if the folder of a checkpoint may have this name."""
    return re.fullmatch(STEP, name) is not None


def is_run_id(name: object) -> bool:
    """True if a run may be called `name`: an id that nothing else in the lab's folder has, also on a disk that ignores
    case. Labs of before took a few others in capsules: those runs are listed, and their folders stay."""
    return isinstance(name, str) and is_id(name) and (plain := name.casefold()) not in RESERVED and (
        not plain.startswith(RESERVED_PREFIXES))


def imports() -> Path:
    """The folder with the metrics of other tools, each in a folder of its own name."""
    return home() / "imported"


def is_import(name: object) -> bool:
    """True if imported metrics may be called `name`."""
    return isinstance(name, str) and is_id(name) and name.startswith(IMPORT_PREFIX)


def log_file(run_id: str) -> Path:
    """The log of a run's worker: its output, and the traceback if it failed."""
    return run_folder(run_id) / LOG


def read_only() -> bool:
    """True if this lab is shared for reading: `RL_LAB_READ_ONLY` is 1. It then shows everything and changes nothing.
    Raises LabError if the variable is neither 1 nor 0."""
    text = os.environ.get("RL_LAB_READ_ONLY", "").strip()
    if text not in ("", "0", "1"):
        raise LabError(f"RL_LAB_READ_ONLY is {quoted(text)}: set it to 1 for a lab that is shared for reading, or "
                       "leave it unset.")
    return text == "1"


def check_writable() -> None:
    """Raises LabError if the lab is shared for reading."""
    if read_only():
        raise LabError(SHARED)


def made(folder: Path, *, spare: bool = False) -> Path:
    """`folder`, created if needed, before something is written there. `spare` files can be made again. Raises LabError
    if it cannot be created, or if the lab is shared for reading and the files are not spare."""
    if not spare:
        check_writable()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"The folder {folder} cannot be made ({os_reason(error)}): set RL_LAB_HOME to a folder that you "
                       "may write to.") from error
    return folder


def max_runs(usual: int | None = None) -> int:
    """The number of runs at the same time: `RL_LAB_MAX_RUNS`, else `usual`, else the number of cores. Raises LabError
    if `RL_LAB_MAX_RUNS` is not a whole number from 1."""
    text = os.environ.get("RL_LAB_MAX_RUNS", "").strip()
    if not text:
        return usual or os.cpu_count() or 1
    if not text.isdecimal() or int(text) < 1:
        raise LabError(f"RL_LAB_MAX_RUNS is {quoted(text)}: set it to a whole number from 1.")
    return int(text)
