"""The picture files of a run: one per step that has something to show, thinned in long runs.

However long a run, each kind has at most twice MOST files: where there are more, every second one goes, of those with
an evaluation and of the others apart: evaluations come at every so many steps, so one halving by place could take them
all. So the newest steps stand closest together, as with checkpoints. Rows of the store are never thinned.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

from labcore.runs.files import atomic, storage

MOST = 1000
EVALUATED = (b'"evaluation": ', b'"groups": ')  # the keys of an evaluation; within a text, quotes are escaped


class Pictures:
    """The files of one kind, `samples` or `lines`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count: int | None = None  # of the files that are there; None before the first is written

    def write(self, step: int, content: dict[str, Any]) -> None:
        """Write what there is to see of a step; thin the others where they are too many.

        What `content` calls the best step so far is spared, since it is shown beside the newest.
        """
        text = json.dumps(finite(content), ensure_ascii=False, allow_nan=False)
        atomic.write_text(self._folder / f"step-{step:06d}.json", text)
        storage.changed(self._folder)
        self._count = len(self._files()) if self._count is None else self._count + 1
        if self._count > 2 * MOST:
            self._thin((content.get("best") or {}).get("step"))

    def _thin(self, best: int | None) -> None:
        evaluated: dict[bool, list[Path]] = {True: [], False: []}
        for path in self._files():
            with suppress(FileNotFoundError):  # a clean-up may take it meanwhile
                content = path.read_bytes()
                evaluated[any(key in content for key in EVALUATED)].append(path)
        for files in evaluated.values():
            for path in files[1:-1:2] if len(files) > MOST else ():
                if path.stem != f"step-{best or 0:06d}":
                    path.unlink(missing_ok=True)
        self._count = len(self._files())

    def _files(self) -> list[Path]:
        """By step: of numbers that are not padded any more, the longer ones come later."""
        return sorted(self._folder.glob("step-*.json"), key=lambda path: (len(path.name), path.name))


def finite(content: Any) -> Any:
    """`content` with null where a number is not finite: a picture of a policy that breaks is still a picture."""
    if isinstance(content, dict):
        return {key: finite(value) for key, value in content.items()}
    if isinstance(content, list):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
