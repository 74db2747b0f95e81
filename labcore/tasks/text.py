"""The user's own text, cut to pieces: the start of a piece is the prompt, the rest its continuation."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from labcore.catalog.knob import Value
from labcore.errors import LabError
from labcore.files.jsonl import read_text
from labcore.tasks.task import Problem, Score
from labcore.tasks.verifiers import verifier


class Text:
    """Pieces of `piece_length` characters from anywhere in the file; their first `prompt_length` are the prompt.

    `size` is the number of places where a piece can start.
    """

    def __init__(self, knobs: Mapping[str, Value], data: Path | None) -> None:
        if data is None:
            raise LabError("Your own text needs a file: upload one, or give --text FILE.")
        if knobs["verifier"] == "contains" and not knobs["pattern"]:
            raise LabError("The contains verifier has nothing to look for in a text: give pattern a value.")
        self._verify = verifier(knobs)
        self._prompt, self._piece = int(knobs["prompt_length"]), int(knobs["piece_length"])
        if self._prompt >= self._piece:
            raise LabError(f"prompt_length {self._prompt} leaves nothing to learn of a piece of {self._piece} "
                           f"characters: set piece_length above {self._prompt}.")
        self._text = read_text(data)
        self.size = len(self._text) - self._piece + 1
        if self.size < 1:
            raise LabError(f"{data.name} has {len(self._text)} characters, fewer than one piece of {self._piece}: "
                           "lower piece_length, or give a longer text.")
        self.characters = "".join(sorted(set(self._text)))
        self._line_ends = [match.start() for match in re.finditer("\n", self._text)]

    def problems(self, count: int, rng: np.random.Generator) -> list[Problem]:
        return [self._problem(start) for start in rng.integers(self.size, size=count).tolist()]

    def _problem(self, start: int) -> Problem:
        middle, end = start + self._prompt, start + self._piece
        line = bisect_right(self._line_ends, start - 1) + 1
        return Problem(self._text[start:middle], self._text[middle:end], line)

    def score(self, problem: Problem, completion: str) -> Score:
        right = self._verify(completion, problem.answer)
        return Score(float(right), right)
