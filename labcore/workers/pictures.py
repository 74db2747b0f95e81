"""The picture files of a run: one per step that has something to show, thinned in long runs.

However long a run, each kind has at most twice MOST files, and at most `RL_LAB_ROLLOUTS_GB` on the disk: where there
are more, every second one goes, of those with an evaluation and of the others apart: evaluations come at every so many
steps, so one halving by place could take them all. So the newest steps stand closest together, as with checkpoints.
Rows of the store are never thinned.
"""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from labcore.errors import LabError, quoted
from labcore.runs.files import step_files, storage

MOST = 1000
SETTING, USUAL_GB = "RL_LAB_ROLLOUTS_GB", 2.0
EVALUATED = ('"evaluation": ', '"groups": ')  # the keys of an evaluation; within a text, quotes are escaped


def most_bytes() -> int:
    """How many bytes the files of one kind of a run may take.

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
    """What is known of a file without reading it again."""

    size: int
    evaluated: bool


class Pictures:
    """The files of one kind, `samples` or `lines`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[Path, _File] | None = None  # by step; None before the first is written

    def write(self, step: int, content: dict[str, Any]) -> str:
        """Write what there is to see of a step; thin the others where they are too many, or too large.

        What `content` calls the best step so far is spared, since it is shown beside the newest. Returns a sentence
        where the files were too large; else an empty text.
        """
        text = json.dumps(finite(content), ensure_ascii=False, allow_nan=False)
        path = step_files.write(self._folder, step, text)
        storage.changed(self._folder)
        if self._files is None:
            self._files = {each: file for each in step_files.found(self._folder) if (file := _known(each))}
        self._files[path] = _File(path.stat().st_size, _evaluated(text))
        best, most = (content.get("best") or {}).get("step"), most_bytes()
        if len(self._files) > 2 * MOST:
            self._thin(best, MOST)
        full = self._bytes() > most
        while self._bytes() > most and self._thin(best, 2):
            pass
        return full * (f"The {self._folder.name} of this run took more than {most / 1e9:g} GB, so every second file "
                       f"was deleted, except the newest. {SETTING} sets the limit.")

    def _bytes(self) -> int:
        return sum(file.size for file in (self._files or {}).values())

    def _thin(self, best: int | None, least: int) -> bool:
        """Delete every second file but the first and the last, of those with an evaluation and of the others, where
        they are more than `least`. False where there is none to delete."""
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
    """The step of a file: of numbers that are not padded any more, the longer ones come later."""
    return step_files.step_of(path.name) or 0


def _known(path: Path) -> _File | None:
    """A file that an earlier process wrote; None where a clean-up takes it meanwhile."""
    with suppress(FileNotFoundError, LabError):
        return _File(path.stat().st_size, _evaluated(step_files.content(path).decode("utf-8", "replace")))
    return None


def _evaluated(text: str) -> bool:
    return any(key in text for key in EVALUATED)


def finite(content: Any) -> Any:
    """`content` with null where a number is not finite: a picture of a policy that breaks is still a picture."""
    if isinstance(content, dict):
        return {key: finite(value) for key, value in content.items()}
    if isinstance(content, list):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
