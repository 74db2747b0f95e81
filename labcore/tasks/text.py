"""The user's own text, cut to pieces: the start of a piece is the prompt, the rest its continuation.

An epoch covers the text once, in pieces that do not overlap; where the first one starts is drawn anew in each epoch, so
that the text is not always cut at the same places. The end of the text is held out, or a second file.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path

from labcore.catalog.knob import Value
from labcore.errors import LabError
from labcore.runs.files.jsonl import read_text
from labcore.tasks.held_out import held_out_file, shuffled
from labcore.tasks.task import Chance, Epochs, Problem, Score
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
            raise LabError(f"`prompt_length` {self._prompt} leaves nothing to learn of a piece of {self._piece} "
                           f"characters: set `piece_length` above {self._prompt}.")
        self._text = read_text(data)
        self._line_ends = [match.start() for match in re.finditer("\n", self._text)]
        if len(self._text) < self._piece:
            raise LabError(f"{data.name} has {len(self._text)} characters, fewer than one piece of {self._piece}: "
                           "lower `piece_length`, or give a longer text.")
        self.said, second = "", held_out_file(knobs)
        other = read_text(second) if second else ""
        kept = len(self._text) if second else self._kept(float(knobs.get("held_out", 0)), data)
        self.held = shuffled([*self._pieces(self._text, kept), *self._pieces(other, 0)])
        self.size = kept - self._piece + 1
        self.characters = "".join(sorted({*self._text, *other}))

    def _kept(self, share: float, data: Path) -> int:
        """The characters to train on, from the first one: all where no piece fits into the `share` at the end."""
        kept = len(self._text) - round(share * len(self._text))
        if share and not self._piece <= kept <= len(self._text) - self._piece:
            self.said = (f"{data.name} has {len(self._text)} characters, too few to hold out {share:g} of them in "
                         f"pieces of {self._piece}, so none is held out: give a longer text, or a second file with "
                         "--held-out FILE.")
            return len(self._text)
        return kept

    def problems(self, count: int, rng: Chance) -> list[Problem]:
        if not isinstance(rng, Epochs):
            return [self._problem(self._text, start) for start in rng.integers(self.size, size=count).tolist()]
        cells, spare = divmod(self.size - 1 + self._piece, self._piece)
        return [self._problem(self._text, int(rng.rng(epoch).integers(spare + 1)) + cell * self._piece)
                for epoch, cell in rng.take(cells, count)]

    def _pieces(self, text: str, start: int) -> list[Problem]:
        """The pieces of a text from a place on, side by side."""
        return [self._problem(text, place) for place in range(start, len(text) - self._piece + 1, self._piece)]

    def _problem(self, text: str, start: int) -> Problem:
        middle, end = start + self._prompt, start + self._piece
        line = bisect_right(self._line_ends, start - 1) + 1 if text is self._text else None
        return Problem(text[start:middle], text[middle:end], line)

    def score(self, problem: Problem, completion: str) -> Score:
        right = self._verify(completion, problem.answer)
        return Score(float(right), right)
