"""`trainer_state.json` of transformers' trainers, TRL's among them: the log, in each checkpoint and at the end."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator

from labcore.errors import LabError
from labcore.runs.files.jsonl import LIMIT
from labcore.runs.files.untrusted import NotJSON, read_json
from labcore.runs.imports.layouts import HISTORY
from labcore.watch.converting.names import number
from labcore.watch.following.calls import Call, End, Row, Settings
from labcore.watch.following.growing import stamp
from labcore.watch.following.reader import Reader

_SETTINGS = ("max_steps", "num_train_epochs", "train_batch_size", "logging_steps", "save_steps", "eval_steps")


class TrainerState(Reader):
    """Reads the rows of the log that earlier files do not have. If the rows differ from theirs, reading starts at the
    first difference, because the trainer resumed from a checkpoint."""

    def look(self, settled: bool) -> Iterator[Call]:
        """Yield the new rows when the file is complete."""
        now = stamp(self.path)
        if now is None or [now.inode, now.size, now.changed] == self.memory.get("read"):
            return
        try:
            state = read_json(self.path, LIMIT, constants=True)
        except NotJSON as error:
            if settled:
                raise LabError(f"{self.path.name} is not JSON ({error}).") from error
            return  # it is being written
        if not isinstance(state, dict) or not isinstance(state.get(HISTORY), list):
            raise LabError(f"{self.path.name} has no {HISTORY}.")
        rows = [row for row in state[HISTORY] if isinstance(row, dict)]
        before = self.shared.get("sums", [])
        sums = [zlib.crc32(json.dumps(row, sort_keys=True).encode()) for row in rows]
        known = next((place for place, (old, new) in enumerate(zip(before, sums, strict=False)) if old != new),
                     min(len(before), len(sums)))
        if settings := {key: state[key] for key in _SETTINGS if state.get(key) is not None}:
            yield Settings(settings)
        for row in rows[known:]:
            yield Row(row)
        if len(rows) > known:
            self.shared["sums"] = sums
        last, done = (number(state.get(key)) or 0.0 for key in ("max_steps", "global_step"))
        if 0 < last <= done and len(rows) > known:
            yield End("finished")
        self.memory["read"] = [now.inode, now.size, now.changed]
