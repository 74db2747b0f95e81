"""The picture files of a run: one per step with something to show, thinned in long runs.

Each kind has at most 2 MOST files and at most `RL_LAB_ROLLOUTS_GB` on the disk. Above these limits, every second file
is deleted, so the newest steps are the densest, as with checkpoints. Files with an evaluation are thinned separately,
because evaluations are periodic and a common thinning could delete all of them. Rows of the store are never thinned.
"""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from labcore.catalog.amounts import size
from labcore.errors import LabError, quoted
from labcore.runs.files import step_files, storage

MOST = 1000
SETTING, USUAL_GB = "RL_LAB_ROLLOUTS_GB", 2.0
EVALUATED = ('"evaluation": ', '"groups": ')  # the keys of an evaluation; within a text, quotes are escaped


def most_bytes() -> int:
    """Return the largest size in bytes of a run's files of one kind.

    Raises:
        LabError: `RL_LAB_ROLLOUTS_GB` is not a number above 0.
    """
    text = os.environ.get(SETTING, "").strip() or f"{USUAL_GB:g}"
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise LabError(f"{SETTING} is {quoted(text)}: set it to a number of GB above 0.")
    return int(number * 1e9)


class _File(NamedTuple):
    """Facts about a file that need not be read again."""

    size: int
    evaluated: bool


class Pictures:
    """The files of one kind, `samples` or `lines`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[Path, _File] | None = None  # by step; None before the first is written

    def write(self, step: int, content: dict[str, Any]) -> str:
        """Write the picture of a step; thin the other files if they are too many or too large.

        The best step so far, which `content` names, is never deleted, because the page shows it beside the newest.
        Returns a sentence if files were deleted, otherwise an empty text.
        """
        text = _text(step_files.with_prompts(content))
        path = step_files.write(self._folder, step, text)
        storage.changed(self._folder)
        if self._files is None:
            self._files = {each: file for each in step_files.found(self._folder) if (file := _known(each))}
        self._files[path] = _File(path.stat().st_size, _evaluated(text))
        best, most, name = (content.get("best") or {}).get("step"), most_bytes(), self._folder.name
        if self._bytes() > most:
            while self._bytes() > most and self._thin(best, 2):
                pass
            return (f"The {name} of this run took more than {size(most)}, so every second file was deleted, except the "
                    f"newest. {SETTING} sets the limit.")
        if len(self._files) > 2 * MOST and self._thin(best, MOST):
            return (f"More than {2 * MOST:,} steps of this run had {name}, so the {name} of every second step were "
                    "deleted, except the newest. Its metrics are complete.")
        return ""

    def _bytes(self) -> int:
        return sum(file.size for file in (self._files or {}).values())

    def _thin(self, best: int | None, least: int) -> bool:
        """Delete every second file except the first and the last, separately for files with an evaluation and without,
        if there are more than `least`. Returns False if none can be deleted."""
        assert self._files is not None
        gone: list[Path] = []
        for evaluated in (True, False):
            these = sorted((path for path, file in self._files.items() if file.evaluated == evaluated), key=_step)
            gone += [path for path in (these[1:-1:2] if len(these) > least else ()) if _step(path) != best]
        for path in gone:
            path.unlink(missing_ok=True)
            del self._files[path]
        return bool(gone)


def _step(path: Path) -> int:
    """Return the step of a file, because names with more digits than the padding do not sort by step."""
    return step_files.step_of(path.name) or 0


def _known(path: Path) -> _File | None:
    """Return the facts about a file of an earlier process; None if a clean-up deletes it meanwhile."""
    with suppress(FileNotFoundError, LabError):
        return _File(path.stat().st_size, _evaluated(step_files.content(path).decode("utf-8", "replace")))
    return None


def _text(content: dict[str, Any]) -> str:
    """Return the JSON of a picture. It is searched for numbers that are not finite only if it has one, because the
    search takes as long as writing."""
    try:
        return json.dumps(content, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(finite(content), ensure_ascii=False, allow_nan=False)


def _evaluated(text: str) -> bool:
    return any(key in text for key in EVALUATED)


def finite(content: Any) -> Any:
    """`content` with null where a number is not finite: a picture of a policy that breaks is still a picture."""
    if isinstance(content, dict):
        return {key: finite(value) for key, value in content.items()}
    if isinstance(content, list):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
