"""`completions.jsonl` of ms-swift, with --log_completions true: a line per log, with a list of each quantity.

Source: ms-swift 4.6, GRPOTrainer.log of swift/rlhf_trainers/grpo_trainer.py.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

from labcore.errors import LabError
from labcore.runs.files.jsonl import LINE_LIMIT
from labcore.runs.files.untrusted import NotJSON, json_of, opened
from labcore.watch.following.calls import Call, Completions, Pictures
from labcore.watch.following.reader import Growing
from labcore.watch.following.step_files import STEP, key_of, number

_PROMPT, _COMPLETION, _ADVANTAGES = "prompt", "completion", "advantages"
_OTHER = (STEP, _PROMPT, _COMPLETION, _ADVANTAGES, "entropy", "num_turns")  # what remains are rewards and columns


class SwiftCompletions(Growing):
    """Yields the step of each line; its completions are read when they are sent, because they are large."""

    most = LINE_LIMIT

    def take(self, data: bytes, at: int) -> tuple[int, list[Call]]:
        used, found = 0, list[Call]()
        for line in data.splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break
            self.memory["lines"] = self.memory.get("lines", 0) + 1
            step = self._step(line)
            if step not in (None, self.memory.get("step")):  # the last log of a training repeats the line before
                self.memory["step"] = step
                found.append(Pictures(step, partial(self._read, step, at + used, len(line))))
            used += len(line)
        return used, found

    def _step(self, line: bytes) -> int | None:
        try:
            table = _table(line)
        except LabError as error:
            self.say(f"has lines without completions, which are skipped; the first is line {self.memory['lines']:,} "
                     f"({str(error).rstrip('.')})")
            return None
        return int(str(table[STEP][-1]))

    def _read(self, step: int, start: int, size: int) -> Completions:
        with opened(self.path) as file:
            file.seek(start)
            table = _table(file.read(size))
        prompts = table[_PROMPT]
        rewards = {name: [*map(number, values)] for name, values in table.items()
                   if name not in _OTHER and any(number(each) is not None for each in values)}
        credit = [*map(number, table.get(_ADVANTAGES, ()))]
        return Completions(step, prompts, table[_COMPLETION], rewards,
                           {_ADVANTAGES: credit} if credit else {}, math.gcd(*Counter(map(key_of, prompts)).values()))


def _table(line: bytes) -> Mapping[str, list[Any]]:
    """The lists of a line, each of one length. Raises LabError if it has none."""
    try:
        value = json_of(line, constants=True)
    except NotJSON as error:
        raise LabError(f"it is not JSON: {error}.") from error
    steps = value.get(STEP) if isinstance(value, dict) else None
    if not isinstance(steps, list) or not steps or not str(steps[-1]).isdecimal():
        raise LabError("it has no list of steps.")
    table = {name: each for name, each in value.items() if isinstance(each, list) and len(each) == len(steps)}
    if not {_PROMPT, _COMPLETION} <= table.keys():
        raise LabError("it has no prompts and completions of one number.")
    return table
