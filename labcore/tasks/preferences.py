"""The user's own preferences: a JSONL file with prompt, chosen and rejected."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from labcore.catalog.knob import Value
from labcore.errors import LabError
from labcore.files.jsonl import read_rows
from labcore.tasks.task import Pair, Problem, Score, draw


class Preferences:
    """Every line is a pair; SFT learns the chosen sides. No verifier: only the chosen text itself counts as right."""

    def __init__(self, knobs: Mapping[str, Value], data: Path | None) -> None:
        if data is None:
            raise LabError("Your own preferences need a file: upload one, or give --preferences FILE.")

        def check(line: int, texts: list[str]) -> None:
            if not texts[0]:
                raise LabError(f"Line {line} of {data.name} has an empty prompt: write something to answer.")
            if texts[1] == texts[2]:
                raise LabError(f"Line {line} of {data.name} has the same text as chosen and rejected: remove it, or "
                               "make them differ.")

        self.rows = [Pair(prompt, chosen, rejected, line) for line, (prompt, chosen, rejected) in read_rows(
            data, (("prompt", "question"), "chosen", "rejected"), check)]
        self.size = len(self.rows)
        texts = (row.prompt + row.chosen + row.rejected for row in self.rows)
        self.characters = "".join(sorted(set().union(*texts)))

    def pairs(self, count: int, rng: np.random.Generator) -> list[Pair]:
        return draw(self.rows, count, rng)

    def problems(self, count: int, rng: np.random.Generator) -> list[Problem]:
        return [Problem(pair.prompt, pair.chosen, pair.line) for pair in self.pairs(count, rng)]

    def score(self, problem: Problem, completion: str) -> Score:
        right = completion == problem.answer
        return Score(float(right), right)
