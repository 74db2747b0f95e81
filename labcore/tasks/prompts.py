"""The user's own prompts: a file with prompts and answers in one of the layouts, judged by a chosen verifier."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from labcore.catalog.knob import Value
from labcore.errors import LabError
from labcore.files.rows import read_rows
from labcore.tasks.epochs import Chance
from labcore.tasks.held_out import parts
from labcore.tasks.layouts import entry, is_conversation, names_of
from labcore.tasks.task import Problem, Score, draw
from labcore.tasks.verifiers import answer_fault, verifier

OWN = ("prompt", "answer")  # fields that a problem has itself


class Prompts:
    """Every line of the file is a problem; the reward is 1 where the verifier accepts, else 0."""

    def __init__(self, knobs: Mapping[str, Value], data: Path | None) -> None:
        if data is None:
            raise LabError("Your own prompts need a file: upload one, or give --prompts FILE.")
        self._verify, names = verifier(knobs), names_of(knobs)

        def read(path: Path, value: Mapping[str, object], line: int) -> Problem:
            place = f"line {line} of {path.name}"
            row = entry(value, place, names)
            answer = row.answer or ""
            fault = answer_fault(knobs, answer)
            if fault and row.answer is None:
                raise LabError(f"L{place[1:]} has no field 'answer', with which the {knobs['verifier']} verifier "
                               "compares: add it, or choose a verifier that needs none, such as regex or length.")
            if fault:
                raise LabError(f"The answer in {place} {fault}: correct it, or choose another verifier.")
            columns = {key: value[key] for key in value if key not in OWN}
            return Problem(row.prompt, answer, line, row.turns, columns, row.whole, is_conversation(value, names))

        found = parts(knobs, data, lambda path: read_rows(path, partial(read, path)))
        self.rows, self.held, self.said = found.rows, found.held, found.said
        self.size = len(self.rows)
        self.characters = "".join(sorted(set().union(*(row.prompt + row.answer for row in (*self.rows, *self.held)))))

    def problems(self, count: int, rng: Chance) -> list[Problem]:
        return draw(self.rows, count, rng)

    def score(self, problem: Problem, completion: str) -> Score:
        right = self._verify(completion, problem.answer)
        return Score(float(right), right)
