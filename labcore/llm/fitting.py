"""Check before the first step that a run's prompts and completions fit the model: its chat template accepts them, and
they leave room for a completion in its context.

A token has at least one byte of text, so only rows with more bytes than the room in tokens are tokenised. Few rows are
rendered, because the text that a template adds depends only on the roles in a conversation and is measured once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from types import MappingProxyType
from typing import Any, TypeVar

from labcore.errors import LabError
from labcore.llm.rendering import SYSTEM, Asked, Rendering
from labcore.llm.state import State
from labcore.runs.files.jsonl import Fault
from labcore.tasks.held_out import held_out_file, in_words
from labcore.tasks.task import Problem, Turn, held_of
from labcore.tasks.usable import CUT, OWN, SKIP, STOP, OfFile, lines_named, said_of

AT_ONCE = 1024  # prompts that are tokenised together
FRAME = 8  # bytes that stand for the tokens which a tokenizer adds by itself, such as a BOS
LETTER = "x"
NO_SYSTEM_TURN = ("The chat template has no system turn, so the system text stands at the beginning of the first "
                  "turn of the user.")
Row = TypeVar("Row")


@dataclass(frozen=True)
class Misfit:
    """A row that cannot be used as it is: its prompt has too many `tokens`, or its rendering has a `fault`. `of` is the
    name of its file, if that is not the run's own file."""

    row: Asked
    tokens: int = 0
    fault: str = ""
    of: str = OWN


@dataclass(frozen=True)
class Fit:
    """The rows that are left out and the rows that are cut, because prompts may have at most `room` tokens.

    `system_in_user_turn`: the template has no system turn, and rows have one.
    """

    room: int
    left_out: Sequence[Misfit] = ()
    cut: Sequence[Misfit] = ()
    system_in_user_turn: bool = False

    def usable(self, rows: Sequence[Row]) -> list[Row]:
        """The rows that are not left out."""
        out = {id(each.row) for each in self.left_out}
        return [row for row in rows if id(row) not in out]

    def notes(self, unread: Mapping[str, Sequence[Fault]]) -> list[str]:
        """The sentences of an event that says so, and which rows could not be read before, by their file."""
        long, faults = [each for each in self.left_out if each.tokens], dict[str, list[Fault]]()
        refused = [(each.of, (each.row.line or 0, each.fault)) for each in self.left_out if each.fault]
        for name, fault in (*((name, fault) for name, some in unread.items() for fault in some), *refused):
            faults.setdefault(name, []).append(fault)
        said = [said_of(sorted(some), name) for name, some in faults.items()]
        for done, some in (("left out", long), ("cut at the beginning", self.cut)):
            if some:
                said.append(f"{_counted(len(some), 'prompt')} of more than {self.room:,} tokens "
                            f"{'was' if len(some) == 1 else 'were'} {done}: {_lines(some)}.")
        return [*said, NO_SYSTEM_TURN] if self.system_in_user_turn else said


def fitted(rendering: Rendering, rows: Sequence[Asked], room: int, knobs: Mapping[str, Any],
           besides: Mapping[str, Sequence[Asked]] = MappingProxyType({})) -> Fit:
    """Check the training rows and those of further files (`besides`, by file name), and leave out or cut unusable ones
    as the knobs `long_prompts` and `unusable_rows` say. Raises LabError if rows cannot be used and must not be left
    out, or no row is left to train on."""
    every = (*rows, *(row for some in besides.values() for row in some))
    names = {id(row): name for name, some in besides.items() for row in some}
    found = sorted((replace(each, of=names.get(id(each.row), OWN)) for each in misfits(rendering, every, room)),
                   key=lambda each: each.of)
    ways = [str(knobs.get("unusable_rows" if each.fault else "long_prompts", STOP)) for each in found]
    stopping, left, shortened = ([each for each, way in zip(found, ways, strict=True) if way == wanted]
                                 for wanted in (STOP, SKIP, CUT))
    if stopping:
        raise LabError(unfit(stopping, room))
    fit = Fit(room, left, shortened, system_in_user_turn(rendering, every))
    if rows and not fit.usable(rows):
        raise LabError(f"No row of the file can be used. {left[0].fault or unfit(left, room)}")
    return fit


def system_in_user_turn(rendering: Rendering, rows: Sequence[Asked]) -> bool:
    """True if a system text stands in the first turn of the user, since the template has no system turn."""
    asked = bool(rendering.system) or any(row.turns and row.turns[0].role == SYSTEM for row in rows)
    return asked and rendering.template is not None and not rendering.takes_system


def misfits(rendering: Rendering, rows: Sequence[Asked], room: int) -> list[Misfit]:
    """The rows whose prompts the template refuses, or have more than `room` tokens; by their lines."""
    frames: dict[tuple[str, ...], float] = {}
    doubtful = [row for row in rows if _most_bytes(rendering, row, frames) > room]
    found = [misfit for start in range(0, len(doubtful), AT_ONCE)
             for misfit in _of_some(rendering, doubtful[start: start + AT_ONCE], room)]
    return sorted(found, key=lambda misfit: misfit.row.line or 0)


def _most_bytes(rendering: Rendering, row: Asked, frames: dict[tuple[str, ...], float]) -> float:
    """At most so many bytes a prompt has once it is rendered; infinite where the template refuses its roles."""
    roles = tuple(turn.role for turn in row.turns)
    if roles not in frames:
        alike = Problem(LETTER, "", turns=tuple(Turn(role, LETTER) for role in roles))
        try:
            frames[roles] = len(rendering.text(alike).encode()) + FRAME
        except LabError:
            frames[roles] = inf
    texts = [turn.content for turn in row.turns] or [row.prompt]
    return frames[roles] + sum(len(text.encode()) for text in texts)


def _of_some(rendering: Rendering, rows: Sequence[Asked], room: int) -> Iterator[Misfit]:
    good = []
    for row in rows:
        try:
            rendering.text(row)
        except LabError as error:
            yield Misfit(row, fault=str(error))
        else:
            good.append(row)
    lengths = map(len, rendering.whole_prompts(good) if good else ())
    yield from (Misfit(row, tokens=length) for row, length in zip(good, lengths, strict=True) if length > room)


def unfit(found: Sequence[Misfit], room: int) -> str:
    """The error text for a file with unusable rows: their number, their lines, and how to fix them."""
    long, faulty = [each for each in found if each.tokens], [each for each in found if each.fault]
    if faulty:
        more = f" The same applies to {_lines(faulty[1:])}." if faulty[1:] else ""
        return f"{faulty[0].fault}{more} To leave out such rows, set `unusable_rows=skip`."
    longest = max(each.tokens for each in long)
    which = f" ({_lines(long)})" if any(each.row.line for each in long) else ""
    have = f"has {longest:,}" if len(long) == 1 else f"have up to {longest:,}"
    return (f"{_counted(len(long), 'prompt')}{which} {have} tokens, but the model has room for {room:,} before the "
            "completion: shorten them, lower `max_new_tokens`, choose a model with a longer context, or set "
            "`long_prompts` to skip or cut.")


def _lines(found: Sequence[Misfit]) -> str:
    """Their lines; those of other files than the run's own with the file's name."""
    lines: dict[str, list[int]] = {}
    for each in found:
        if each.row.line:
            lines.setdefault(each.of, []).append(each.row.line)
    return ", and ".join(lines_named(some) + (f" of {name}" if name else "") for name, some in lines.items())


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' if count != 1 else ''}"


def check_room(session: State) -> None:
    """Check that the length limit and every prompt of the user's file fit the context together; leave out rows that do
    not fit if the run's knobs say so, and have the next record name them. Raises LabError if the limit and a prompt do
    not fit, before the first step, not when such a prompt is drawn. If the limit is raised during the run, completions
    are cut at the end of the context instead."""
    if int(session.knobs["max_new_tokens"]) >= session.context:
        raise LabError(f"`max_new_tokens` {session.knobs['max_new_tokens']} leaves no room for a prompt in the model's "
                       f"context of {session.context} tokens: use {session.context - 1} or less.")
    task = session.task if isinstance(session.task, OfFile) else None
    if task:
        task.take(task.every.rows, task.every.held)
    second = held_out_file(session.spec.knobs) if task else None
    besides = {in_words(second) if second else OWN: held_of(session.task), "the labelled pairs": session.labelled}
    fit = fitted(session.rendering, getattr(session.task, "rows", ()), session.prompt_room, session.knobs, besides)
    if task:
        task.take(fit.usable(task.every.rows), fit.usable(task.every.held))
        session.labelled = fit.usable(session.labelled)
    for text in (getattr(session.task, "said", ""), *fit.notes(task.left_out if task else {})):
        session.say_once(text)
