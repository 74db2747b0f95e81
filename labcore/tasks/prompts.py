"""The user's own prompts: a JSONL file with prompt (or question) and answer, judged by a chosen verifier."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from labcore.catalog.knob import Value
from labcore.errors import LabError
from labcore.files.jsonl import read_objects, texts_of
from labcore.tasks.task import Problem, Score, draw
from labcore.tasks.verifiers import answer_fault, verifier


class Prompts:
    """Every line of the file is a problem; the reward is 1 where the verifier accepts, else 0."""

    def __init__(self, knobs: Mapping[str, Value], data: Path | None) -> None:
        if data is None:
            raise LabError("Your own prompts need a file: upload one, or give --prompts FILE.")
        self._verify = verifier(knobs)

        def read(value: Mapping[str, object], line: int) -> Problem:
            prompt, answer = texts_of(value, (("prompt", "question"), "answer"), data, line)
            if not prompt:
                raise LabError(f"Line {line} of {data.name} has an empty prompt: write something to answer.")
            if fault := answer_fault(knobs, answer):
                raise LabError(f"The answer in line {line} of {data.name} {fault}: correct it, or choose another "
                               "verifier.")
            return Problem(prompt, answer, line)

        self.rows = read_objects(data, read)
        self.size = len(self.rows)
        self.characters = "".join(sorted(set().union(*(row.prompt + row.answer for row in self.rows))))

    def problems(self, count: int, rng: np.random.Generator) -> list[Problem]:
        return draw(self.rows, count, rng)

    def score(self, problem: Problem, completion: str) -> Score:
        right = self._verify(completion, problem.answer)
        return Score(float(right), right)
