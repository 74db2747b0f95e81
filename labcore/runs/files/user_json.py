"""The user's own data in single JSON files of the lab's folder: changed under a lock and written as a whole.

A file that is damaged is named and left as it is, never begun anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from labcore.errors import LabError, os_reason
from labcore.runs.files import atomic, untrusted
from labcore.runs.files.paths import home, made


@dataclass(frozen=True)
class Kept:
    """The file `name` with {`key`: entries}, where entries are a `form`: a list or a dict. `what` begins a sentence."""

    name: str
    key: str
    form: type[list[Any]] | type[dict[str, Any]]
    what: str

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return home() / self.name

    @property
    def damaged(self) -> LabError:
        """The sentence about a file whose content cannot be used."""
        return LabError(f"{self.what} cannot be read: {self.path} is damaged. It is kept as it is; repair it, or move "
                        "it to another folder to start with an empty one.")

    def read(self) -> Any:
        """The entries as they are; none where there is no file. Raises LabError if it is damaged."""
        if not self.path.exists():
            return self.form()
        try:
            entries = untrusted.read_json(self.path)[self.key]
        except (LabError, ValueError, TypeError, KeyError) as error:
            raise self.damaged from error
        if not isinstance(entries, self.form):
            raise self.damaged
        return entries

    @contextmanager
    def changing(self) -> Iterator[Any]:
        """The entries, to be changed in place; then the file is written. Several processes may do so at once. Raises
        LabError if it is damaged, or cannot be written."""
        made(home())
        try:
            with FileLock(f"{self.path}.lock"):
                entries = self.read()
                yield entries
                text = json.dumps({self.key: entries}, ensure_ascii=False, indent=2)
                atomic.write_text(self.path, f"{text}\n", sync=True)
        except OSError as error:
            raise LabError(f"{self.what} cannot be written to {self.path} ({os_reason(error)}): free some space, or "
                           "set RL_LAB_HOME to a folder that you may write to.") from error
