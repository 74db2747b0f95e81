"""The user's own preferences: a JSONL file of pairs (prompt, chosen, rejected), or of completions with a label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite
from pathlib import Path

from labcore.catalog import choices
from labcore.catalog.knob import Value
from labcore.errors import LabError, quoted
from labcore.runs.files import uploads
from labcore.tasks.held_out import parts, problem_of
from labcore.tasks.layouts import OWN_ANSWERS, Entry, entry, names_of, own_answer, renamed
from labcore.tasks.task import Chance, Pair, Problem, Score, Single, draw
from labcore.tasks.usable import LeftOut, usable_rows

_PAIR, _SINGLE = ("chosen", "rejected"), ("completion", "label")


class Preferences:
    """Every line is a pair, or in a file whose first line has one, a completion and its label. SFT learns the chosen or
    desired sides. No verifier: only that text itself counts as right."""

    rows: list[Pair | Single]
    held: list[Pair | Single]
    size: int

    def __init__(self, knobs: Mapping[str, Value], data: Path | None) -> None:
        if data is None:
            raise LabError("Your own preferences need a file: upload one, or give --preferences FILE.")
        self.unpaired: bool | None = None  # the first line that can be read says so
        names = names_of(knobs)
        answered = any(each.own_answer for each in choices.chosen(choices.PREFERENCE_LOSS, knobs))

        def read(path: Path, value: Mapping[str, object], line: int) -> Pair | Single:
            value = renamed(value, f"line {line} of {path.name}", names)
            if self.unpaired is None:
                self.unpaired = _unpaired(value, path, line)
            if self.unpaired:
                return _single(value, path, line)
            pair = _pair(value, path, line)
            return replace(pair, answer=_answer(value, path, line)) if answered else pair

        self._file = data
        self.left_out: LeftOut = {}
        self.every = parts(knobs, data, lambda path: usable_rows(data, path, partial(read, path), knobs, self.left_out))
        self.said = self.every.said
        self.take(self.every.rows, self.every.held)
        if self.unpaired:
            _check_loss(knobs, data)
        self.characters = "".join(sorted(set().union(*(row.prompt + "".join(_sides(row))
                                                       for row in (*self.rows, *self.held)))))

    def take(self, rows: Sequence[Pair | Single], held: Sequence[Pair | Single]) -> None:
        """Use these of the file's rows, and no others. Raises LabError where all labels are the same."""
        self.rows, self.held, self.size = [*rows], [*held], len(rows)
        self._pairs = [row for row in rows if isinstance(row, Pair)]
        self._singles = [row for row in rows if isinstance(row, Single)]
        self._desired = [row for row in self._singles if row.label]
        if self.unpaired:
            _check_labels(self._singles, self._file, bool(held))

    def pairs(self, count: int, rng: Chance) -> list[Pair]:
        return draw(self._pairs, count, rng)

    def singles(self, count: int, rng: Chance) -> list[Single]:
        return draw(self._singles, count, rng)

    def problems(self, count: int, rng: Chance) -> list[Problem]:
        rows: Sequence[Pair | Single] = self._desired if self.unpaired else self._pairs
        return [problem_of(row) for row in draw(rows, count, rng)]

    def score(self, problem: Problem, completion: str) -> Score:
        right = completion == problem.answer
        return Score(float(right), right)


def labelled_pairs(place: str) -> list[Pair]:
    """The pairs in the upload at a place, on top of those that a task brings. Raises LabError if no file is kept there,
    or it is no file of pairs."""
    path = uploads.file_at(place)
    if path is None:
        raise LabError(f"There are no labelled pairs {quoted(place)} here: give the file again, with --labels FILE.")
    task = Preferences({}, path)
    if task.unpaired:
        raise LabError(f"{path.name} has single completions with labels, and a reward model learns from pairs: give a "
                       "file with chosen and rejected.")
    return [row for row in task.rows if isinstance(row, Pair)]


def _sides(row: Pair | Single) -> tuple[str, ...]:
    return (row.chosen, row.rejected, row.answer) if isinstance(row, Pair) else (row.completion,)


def _unpaired(first: Mapping[str, object], data: Path, line: int) -> bool:
    """True if the file has single completions, by one of its lines."""
    if not {*_PAIR, *_SINGLE} & first.keys():
        found = ", ".join(map(repr, first)) or "none"
        raise LabError(f"Line {line} of {data.name} has the fields {found}: a pair needs 'prompt', 'chosen' and "
                       "'rejected', a single completion 'prompt', 'completion' and 'label'; rename them.")
    return not set(_PAIR) & first.keys()


def _pair(value: Mapping[str, object], data: Path, line: int) -> Pair:
    row = _entry(value, _PAIR, data, line)
    assert row.chosen is not None and row.rejected is not None
    if row.chosen == row.rejected:
        raise LabError(f"Line {line} of {data.name} has the same text as chosen and rejected: remove it, or make them "
                       "differ.")
    return Pair(row.prompt, row.chosen, row.rejected, line, _cut(value, "chosen_truncated", data, line),
                _cut(value, "rejected_truncated", data, line), turns=row.turns, margin=_margin(value, data, line))


def _answer(value: Mapping[str, object], data: Path, line: int) -> str:
    """The answer of a pair that a loss learns beside its sides, under the name that TRL gives it."""
    found = own_answer(value, f"line {line} of {data.name}")
    if not found:
        raise LabError(f"Line {line} of {data.name} has no field {' or '.join(map(repr, OWN_ANSWERS))}, and the loss "
                       "`answer_sft` learns an answer beside both sides: add it, or choose another loss.")
    return found


def _margin(value: Mapping[str, object], data: Path, line: int) -> float | None:
    """The margin of a pair, under the name that TRL and OpenRLHF give it; None where it has none."""
    margin = value.get("margin")
    if margin is None:
        return None
    try:
        found = float("nan") if isinstance(margin, bool) else float(str(margin))
    except ValueError:
        found = float("nan")
    if not isfinite(found):
        raise LabError(f"The field 'margin' in line {line} of {data.name} is {quoted(margin)}: write a number, by how "
                       "much more the chosen side is to score, or leave it out.")
    return found


def _single(value: Mapping[str, object], data: Path, line: int) -> Single:
    row = _entry(value, _SINGLE[:1], data, line)
    assert row.completion is not None and row.label is not None
    return Single(row.prompt, row.completion, row.label, line, row.turns)


def _entry(value: Mapping[str, object], needed: Sequence[str], data: Path, line: int) -> Entry:
    for name in needed:
        if value.get(name) is None:
            raise LabError(f"Line {line} of {data.name} has no field {name!r}: add it.")
    return entry(value, f"line {line} of {data.name}", labelled=True)


def _cut(value: Mapping[str, object], field: str, data: Path, line: int) -> bool:
    """True if a side was sampled and cut at the length limit, as labels of a run's completions say it."""
    cut = value.get(field, False)
    if not isinstance(cut, bool):
        raise LabError(f"The field {field!r} in line {line} of {data.name} is {quoted(cut)}: write true where the text "
                       "was cut off, or leave it out.")
    return cut


def _check_labels(singles: list[Single], data: Path, parted: bool) -> None:
    labels = {single.label for single in singles}
    if len(labels) == 1:
        only, which = str(labels.pop()).lower(), " that is not held out" if parted else ""
        raise LabError(f"Every label in {data.name}{which} is {only}: there is nothing to tell apart; add completions "
                       "with the other label.")


def _check_loss(knobs: Mapping[str, Value], data: Path) -> None:
    able = [choice.key for choice in choices.PREFERENCE_LOSS.members if choice.unpaired]
    for name in choices.losses_of(knobs):
        if name not in able:
            raise LabError(f"{data.name} has single completions with labels, and the preference loss {name!r} learns "
                           f"from pairs: use {' or '.join(able)}, or give a file with chosen and rejected.")
