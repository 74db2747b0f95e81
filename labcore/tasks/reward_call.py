"""Call a reward function of the user, by the contract of TRL's GRPOTrainer, and check its result.

    f(prompts, completions, completion_ids, trainer_state, **columns) -> one number for each completion

All are keywords, and lists with an item for each completion. A row of a conversation has its prompt as a list of
messages, and its completion as a list of one. `columns` are the other fields of the rows in the file, None where a row
lacks one, and `answer`, the task's own. A function without `**` gets only what it names. It may be async; those are
awaited together. None for a completion means that the function does not score it.

Source: TRL 1.16, `GRPOTrainer._calculate_rewards`. Left out of it: `log_extra`, `log_metric` and `environments`.
"""

from __future__ import annotations

import asyncio
import atexit
import copy
import inspect
import math
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

from labcore.catalog.reward_terms import Term
from labcore.errors import LabError, listed, quoted
from labcore.tasks import own_reward
from labcore.tasks.task import Problem, TextTask, Turn

GIVEN = ("prompts", "completions", "completion_ids", "trainer_state")
ANSWER = "answer"
HIDDEN = frozenset({*GIVEN, ANSWER, "prompt", "completion"})  # no columns: given otherwise, or not passed by TRL


@dataclass(frozen=True)
class Asked:
    """The arguments of reward functions: the problem, the text and the ids of each of B completions (None: the ids are
    not known, so no function gets them), the names of the file's columns, and how far the run is: `step` of `steps`
    optimizer updates."""

    problems: Sequence[Problem]
    texts: Sequence[str]
    ids: Sequence[Sequence[int]] | None
    columns: Iterable[str] = ()
    step: int = 0
    steps: int = 0

    def arguments(self) -> dict[str, Any]:
        """The keywords, as objects of their own: a function may change what it gets."""
        columns = {name: [problem.columns.get(name) for problem in self.problems] for name in self.columns}
        return copy.deepcopy({**columns, ANSWER: [problem.answer for problem in self.problems]}) | {
            "prompts": [messages(problem) or problem.prompt for problem in self.problems],
            "completions": [[{"role": "assistant", "content": text}] if messages(problem) else text
                            for problem, text in zip(self.problems, self.texts, strict=True)],
            **({} if self.ids is None else {"completion_ids": [[*ids] for ids in self.ids]}),
            "trainer_state": SimpleNamespace(global_step=self.step, max_steps=self.steps)}


def messages(problem: Problem) -> list[dict[str, str]]:
    """The prompt of a conversation as a list of messages; empty where the row has a text."""
    turns = problem.turns or ((Turn("user", problem.prompt),) if problem.talk else ())
    return [turn._asdict() for turn in turns]


def columns_of(task: TextTask) -> list[str]:
    """The columns of a task's file that functions get, those of all rows; none where it has no file."""
    found = {name: None for row in getattr(task, "rows", ()) for name in getattr(row, "columns", ())}
    return [name for name in found if name not in HIDDEN]


def check_columns(terms: Iterable[Term], columns: Sequence[str], without: Sequence[str] = ()) -> None:
    """Check that each function finds the columns that it asks for. `without`: the arguments of reward functions that
    are missing here. Raises LabError if a parameter without a default is not among the columns."""
    there = {*GIVEN, ANSWER, *columns}.difference(without)
    for term in terms:
        if term.function:
            named, _ = _parameters(own_reward.function(term.key))
            for name, parameter in named.items():
                if parameter.default is parameter.empty and name not in there:
                    raise LabError(
                        f"The reward function {term.file}:{term.function} asks for the column {quoted(name)}, which "
                        f"the rows do not have: add it to the file, or give the parameter a default. The columns are "
                        f"{listed([ANSWER, *columns])}.")


def _parameters(function: own_reward.Function) -> tuple[Mapping[str, inspect.Parameter], bool]:
    """The parameters that a keyword can fill, and whether the function takes any other keyword too."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of C, without a signature
        return {}, True
    return ({each.name: each for each in found if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)},
            any(each.kind == each.VAR_KEYWORD for each in found))


def rewards(terms: Sequence[Term], asked: Asked) -> list[list[float]]:
    """The rewards of each function for each completion, called once; NaN where it does not score one. K lists of B.
    Raises LabError if a function is not there, raises, ends the process, or returns anything but a finite number or
    None for each completion."""
    with own_reward.quietly():
        returned = [_called(term, asked) for term in terms]
        if any(map(inspect.isawaitable, returned)):
            returned = loop().run(_all(terms, returned))
        return [_checked(term, answer, asked.texts) for term, answer in zip(terms, returned, strict=True)]


def _called(term: Term, asked: Asked) -> Any:
    function = own_reward.function(term.key)
    named, anything = _parameters(function)
    given = asked.arguments()
    with own_reward.blamed(*_raised(term)):
        return function(**(given if anything else {name: given[name] for name in named if name in given}))


def _raised(term: Term) -> tuple[str, str]:
    return f"The reward function {term.file}:{term.function} raised ", ": correct it, then start a new run with it."


@cache
def loop() -> asyncio.Runner:
    """One event loop for the whole process: clients that a function keeps belong to the loop that they began in."""
    runner = asyncio.Runner()
    atexit.register(runner.close)
    return runner


async def _all(terms: Sequence[Term], returned: Sequence[Any]) -> list[Any]:
    """The results of the functions; async ones are awaited together."""
    async def one(term: Term, answer: Any) -> Any:
        if not isinstance(answer, Awaitable):
            return answer
        with own_reward.blamed(*_raised(term)):
            return await answer

    return await asyncio.gather(*map(one, terms, returned))


def _checked(term: Term, returned: Any, texts: Sequence[str]) -> list[float]:
    name = f"The reward function {term.file}:{term.function}"
    with own_reward.blamed(*_raised(term)):  # what it returned may be an object of theirs
        answers = list(returned)
        found = [math.nan if answer is None else _number(answer) for answer in answers]
    if len(found) != len(texts):
        raise LabError(f"{name} returned {len(found)} rewards for {len(texts)} completions: return one for each.")
    for answer, number, text in zip(answers, found, texts, strict=True):
        if answer is not None and not math.isfinite(number):
            raise LabError(f"{name} returned {quoted(answer)} for the completion {quoted(text)}: return a finite "
                           "number, or None for a completion that it does not score.")
    return found


def _number(reward: Any) -> float:
    """A reward as a number; NaN where it is none. Numbers of other libraries raise what they like."""
    try:
        return math.nan if isinstance(reward, (str, bytes)) else float(reward)
    except Exception:
        return math.nan
