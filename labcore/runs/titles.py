"""Titles of runs, as people read them.

Readers see the title of a run, the same on every page and in every list: "GRPO sort #3". Commands, links and file names
use its id, such as grpo-sort-8606, which names it in every lab and every folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from sqlalchemy.exc import SQLAlchemyError

from labcore.errors import LabError
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.store.rows import RunRow
from labcore.runs.store.store import Store

# An id that the lab made, with the step of a checkpoint or without. In commands, paths and names of files it stays, and
# where the sentence is of the id itself.
_NAMED = re.compile(r"python -m labcore[^,;()\n]*|\bid [\w.-]+|"
                    r"(?<![\w./@:=-])(?P<run>\w[\w.-]*-[0-9a-f]{4,})(?:@(?P<step>\d{1,9}))?(?![\w/@-]|\.\w)")


def title(run: RunRow) -> str:
    """The algorithm, or the mix by the name that its owner gave it, the task, and the number of the run. Of a watched
    run the name that its program gave it.

    So no two runs have one title, and none ever changes.
    """
    spec = run.spec
    return f"{spec.task if spec.kind_row.elsewhere else f'{spec.row.label} {spec.task}'} {number(run)}"


def number(run: RunRow) -> str:
    """The lab's number of a run, "#3"; of one of a sweep the sweep's own name and the place in it, "#8606ab.2"."""
    return f"#{run.number}" if run.number >= 0 else f"#{(run.sweep or '').removeprefix('sweep-')}.{-run.number}"


def with_id(run: RunRow) -> str:
    """The title, and the id for the next command: "GRPO sort #3 (grpo-sort-8606)"."""
    return f"{title(run)} ({run.id})"


def with_ids(store: Store, run_ids: Sequence[str]) -> list[str]:
    """The titles with ids of these runs, in the trash or not; only the id of a run that does not exist."""
    known = store.runs_named(run_ids, in_trash=True)
    return [with_id(known[run_id]) if run_id in known else run_id for run_id in run_ids]


def titles(store: Store, run_ids: Iterable[str]) -> dict[str, str]:
    """The titles of those of these runs that are there, in the trash or not, by their ids."""
    return {run_id: title(run) for run_id, run in store.runs_named(list(run_ids), in_trash=True).items()}


def parent_title(store: Store, spec: RunSpec) -> str:
    """The title of a fork's parent; its id where it was deleted for good, and empty for a run that is no fork.
    """
    run_id = spec.parent[0] if spec.parent else ""
    return titles(store, [run_id]).get(run_id, run_id) if run_id else ""


def with_titles(sentence: str, store: Callable[[], Store], ids: bool = False) -> str:
    """A sentence with the ids of runs replaced by their titles; with `ids` these follow in brackets.

    `store` opens the store, which few sentences need. If the store cannot be read, the ids stay: the sentence may be
    about that very fault, and no other error may take its place.
    """
    named = {found["run"] for found in _NAMED.finditer(sentence) if found["run"]}
    try:
        known = titles(store(), named) if named else {}
    except (LabError, SQLAlchemyError, OSError):
        return sentence

    def words(found: re.Match[str]) -> str:
        if found["run"] not in known:
            return found[0]
        step = f" at step {int(found['step']):,}" if found["step"] else ""
        return f"{known[found['run']]}{step}" + (f" ({found[0]})" if ids else "")

    return _NAMED.sub(words, sentence) if known else sentence
