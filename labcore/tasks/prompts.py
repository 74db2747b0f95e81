"""The user's own prompts: a file with prompts and answers in one of the layouts, judged by a chosen verifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from labcore.catalog.knob import Value
from labcore.errors import LabError
from labcore.tasks.layouts import entry, names_of
from labcore.tasks.task import Problem, Score, draw
from labcore.tasks.usable import usable_rows
from labcore.tasks.verifiers import answer_fault, verifier


class Prompts:
    """Every line of the file is a problem; the reward is 1 where the verifier accepts, else 0."""

    rows: list[Problem]
    size: int

    def __init__(self, knobs: Mapping[str, Value], data: Path | None) -> None:
        if data is None:
            raise LabError("Your own prompts need a file: upload one, or give --prompts FILE.")
        self._verify, names = verifier(knobs), names_of(knobs)

        def read(value: Mapping[str, object], line: int) -> Problem:
            place = f"line {line} of {data.name}"
            row = entry(value, place, names)
            answer = row.answer or ""
            fault = answer_fault(knobs, answer)
            if fault and row.answer is None:
                raise LabError(f"L{place[1:]} has no field 'answer', with which the {knobs['verifier']} verifier "
                               "compares: add it, or choose a verifier that needs none, such as regex or length.")
            if fault:
                raise LabError(f"The answer in {place} {fault}: correct it, or choose another verifier.")
            return Problem(row.prompt, answer, line, row.turns, row.columns)

        self.every, self.left_out = usable_rows(data, read, knobs)
        self.take(self.every)
        self.characters = "".join(sorted(set().union(*(row.prompt + row.answer for row in self.rows))))

    def take(self, rows: Sequence[Problem]) -> None:
        """Use these of the file's rows, and no others."""
        self.rows, self.size = [*rows], len(rows)

    def problems(self, count: int, rng: np.random.Generator) -> list[Problem]:
        return draw(self.rows, count, rng)

    def score(self, problem: Problem, completion: str) -> Score:
        right = self._verify(completion, problem.answer)
        return Score(float(right), right)
