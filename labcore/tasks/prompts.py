"""The user's own prompts: a file with prompts and answers in one of the layouts, judged by a chosen verifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from labcore.catalog.knob import Value
from labcore.catalog.llm.tasks import WITHOUT_ANSWERS
from labcore.errors import LabError
from labcore.tasks.held_out import parts
from labcore.tasks.layouts import entry, is_conversation, names_of
from labcore.tasks.levels import level_of
from labcore.tasks.steps import FROM_FILE, labelled_steps
from labcore.tasks.task import Chance, Problem, Score, draw
from labcore.tasks.usable import LeftOut, usable_rows
from labcore.tasks.verifiers import answer_fault, verifier

STEP_LABELS = "step_labels"  # the knob of the source of step labels
OWN = ("prompt", "answer")  # fields that a problem has itself


class Prompts:
    """Every line of the file is a problem; the reward is 1 where the verifier accepts, else 0."""

    rows: list[Problem]
    held: list[Problem]
    size: int

    def __init__(self, knobs: Mapping[str, Value], data: Path | None) -> None:
        if data is None:
            raise LabError("Your own prompts need a file: upload one, or give --prompts FILE.")
        self._verify, names = verifier(knobs), names_of(knobs)

        def read(path: Path, value: Mapping[str, object], line: int) -> Problem:
            place = f"line {line} of {path.name}"
            row = entry(value, place, names)
            answer = row.answer or ""
            columns = {key: value[key] for key in value if key not in OWN}
            made = Problem(row.prompt, answer, line, row.turns, columns, row.whole, is_conversation(value, names),
                           level_of(columns))
            if knobs.get(STEP_LABELS) == FROM_FILE:  # answers are given and not verified
                labelled_steps(made)
                return made
            fault = answer_fault(knobs, answer)
            if fault and row.answer is None:
                raise LabError(f"L{place[1:]} has no field 'answer', with which the {knobs['verifier']} verifier "
                               f"compares: add it, or choose a verifier that needs none ({WITHOUT_ANSWERS}), also "
                               "beside a judge, a reward model or functions of your own.")
            if fault:
                raise LabError(f"The answer in {place} {fault}: correct it, or choose another verifier.")
            return made

        self.left_out: LeftOut = {}
        self.every = parts(knobs, data, lambda path: usable_rows(data, path, partial(read, path), knobs, self.left_out))
        self.said = self.every.said
        self.take(self.every.rows, self.every.held)
        self.characters = "".join(sorted(set().union(*(
            row.prompt + row.answer + "".join(_given(row, knobs)) for row in (*self.rows, *self.held)))))

    def take(self, rows: Sequence[Problem], held: Sequence[Problem]) -> None:
        """Use these of the file's rows, and no others."""
        self.rows, self.held, self.size = [*rows], [*held], len(rows)

    def problems(self, count: int, rng: Chance) -> list[Problem]:
        return draw(self.rows, count, rng)

    def score(self, problem: Problem, completion: str) -> Score:
        right = self._verify(completion, problem.answer)
        return Score(float(right), right)


def _given(row: Problem, knobs: Mapping[str, Value]) -> list[str]:
    """The steps of a row, where a run learns from them."""
    return labelled_steps(row)[0] if knobs.get(STEP_LABELS) == FROM_FILE else []
