"""Detect the task that a file is for: its first line says whether it holds preference pairs or prompts with answers.

People give a file to the first field that they find. So a file of preferences is taken as one wherever it is given, and
a file that an algorithm cannot learn from is refused with what it holds and what is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from labcore.catalog import choices
from labcore.catalog.algorithm import Algorithm
from labcore.catalog.task import Task
from labcore.errors import LabError
from labcore.runs.files import storage
from labcore.runs.files.rows import first_row
from labcore.tasks.layouts import CONVERSATIONS
from labcore.tasks.layouts import PROMPTS as ASKED

PROMPTS, PREFERENCES = "prompts", "preferences"
_WORDS = {PROMPTS: "prompts with answers (prompt, answer)", PREFERENCES: "preferences (prompt, chosen, rejected)",
          "text": "plain text"}


def kinds_of(path: Path, names: Mapping[str, str] | None = None) -> list[str]:
    """The kinds that the fields of a file's first row allow: preferences, prompts, both, or neither; `names` says which
    of them stand for others. Empty where the row cannot be read: whoever reads the file says what is wrong. Raises
    LabError if the file cannot be read, or is empty."""
    fields = {key for key, value in first_row(path).items() if value is not None}
    fields |= {name for name, own in (names or {}).items() if own in fields}
    pairs = bool(fields & {"chosen", "rejected"}) or {"completion", "label"} <= fields
    prompts = bool(fields & {*ASKED, *CONVERSATIONS}) and (not pairs or "answer" in fields)
    return [*[PREFERENCES] * pairs, *[PROMPTS] * prompts]


def task_for(path: Path, given: Task, rows: Sequence[Algorithm], tasks: Mapping[str, Task],
             names: Mapping[str, str] | None = None) -> Task:
    """The task under which the algorithms `rows` learn from a file that was given for the task `given`.

    Preferences are taken as such wherever they are given. Where each line has an answer as well, algorithms that learn
    from no pairs use them as prompts. Raises LabError if the file holds another kind of data than the task or the
    algorithms need.
    """
    found = kinds_of(storage.fetch(path), names)
    if not found:
        return given
    fitting = next(task for task in tasks.values() if task.data == found[0])
    from_pairs = found[0] == PREFERENCES and all(_paired(row) and row.learns(fitting) for row in rows)
    if given.data in found and not from_pairs:
        return given
    able = any(row.learns(fitting) for row in rows)
    if able and found[0] == PREFERENCES:
        return fitting
    if able:
        needs, advice = f"the task {given.label!r} reads", f"choose the task {fitting.label!r} ({fitting.key})"
    else:
        needs = f"{' and '.join(row.label for row in rows)} learn{'s' if len(rows) == 1 else ''} from"
        advice = "choose an algorithm that learns from pairs, such as DPO"
    wanted = PROMPTS if given.data == found[0] else given.data
    raise LabError(f"{path.name} has {_WORDS[found[0]]}, and {needs} {_WORDS[wanted]}: {advice}, or give another file.")


def _paired(row: Algorithm) -> bool:
    """True if an algorithm learns from pairs."""
    return any(knob.key == choices.PAIRS.key for knob in row.knobs)
