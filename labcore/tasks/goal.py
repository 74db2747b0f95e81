"""The sentence of a language model's run, with an example of its own task: the first row of the user's file, or a
problem that the task makes with the run's knobs."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from labcore.catalog.goal import Goal, Quote, filled, of_task, reward_words
from labcore.catalog.knob import Value
from labcore.catalog.task import Task
from labcore.runs.files.untrusted import NotJSON, json_of
from labcore.runs.spec.run_spec import RunSpec
from labcore.tasks.environment import TRIES, EnvironmentTask, Episode
from labcore.tasks.file_statistics import answer_of
from labcore.tasks.numbers import number
from labcore.tasks.task import Pair, Problem, Single, TextTask, make_task
from labcore.tasks.verifiers import letter

# By the loop, and by what a row of the task is: what the model does with it.
_LOOPS = {
    "online": "The model {sees} {prompt}{goal}.",
    "sft": "The model {sees} {prompt} and learns to write {answer} from examples.",
    "preference": "The model {sees} {prompt} and learns to prefer the better of two answers, such as {answer}.",
    "reward_model": "The model {sees} {prompt} and must score the better of two answers higher, such as {answer}.",
    "prm": "The model {sees} {prompt} and an answer, and must say of each step whether it is right.",
}
_PAIRS = {
    "preference": "The model {sees} {prompt} and learns to prefer {chosen} to {rejected}.",
    "reward_model": "The model {sees} {prompt} and must score {chosen} higher than {rejected}.",
}
_SINGLE = "The model {sees} {prompt} and learns that {answer} is a {label} answer."
_SOURCE = "The model {sees} {prompt} and earns {source}"
QUIZ_STREAM = 2**32 + 1  # of those that choose the questions of the Playground; (seed, 2³²) draws a trial of a batch
WATCHED_STREAM = 2**32 + 2  # of the random numbers that choose the prompts which a run watches: a tag that no step has
_TRIES = 20  # problems, of which the one is shown whose answer earns the most


def goal(spec: RunSpec) -> Goal:
    """The sentence on the goal of a run. Raises LabError if its task cannot be made, for example because the user's
    file is gone."""
    task = spec.task_row
    if task.data and not spec.data:
        return Goal((f"The model {task.sees} a prompt of your file.",))
    row, reward = example(task, spec.knobs, spec.data, spec.seed)
    values: dict[str, Value | Quote] = {**spec.knobs, "prompt": Quote(row.prompt), "answer": Quote(answer_of(row))}
    if isinstance(row, Pair):
        values |= {"chosen": Quote(row.chosen), "rejected": Quote(row.rejected)}
    if isinstance(row, Single):
        values["label"] = "good" if row.label else "bad"
    if isinstance(row, Problem):
        values |= {"reward": float(f"{reward:.2g}"), **_of_answer(row.answer, spec.knobs)}
    return filled(_template(spec, row, reward).replace("{sees}", task.sees), values)


def example(task: Task, knobs: Mapping[str, Value], data: str | None,
            seed: int = 0) -> tuple[Problem | Pair | Single, float]:
    """A row of a task and the reward of its answer: 1 if a verifier accepts it, and 0 if the row has no reward. For a
    task that makes its problems, it is usually the first prompt that a run with this seed watches."""
    made = make_task(task, knobs, data)
    seeds = np.random.SeedSequence((seed, WATCHED_STREAM, 0)).generate_state(2)
    rows = getattr(made, "rows", None) or made.problems(_TRIES, np.random.default_rng(seeds[1]))
    if not isinstance(rows[0], Problem):
        return rows[0], 0.0
    if task.data:
        return rows[0], _reward(made, rows[0])
    best = max(rows, key=lambda row: (_reward(made, row), _short(row.answer)))
    return best, _reward(made, best)


def _short(answer: str) -> int:
    """Larger the closer an episode is to two turns: one turn shows no reply to an observation, and many take long."""
    return -abs(len(answer.moves) - 2) if isinstance(answer, Episode) else 0


def wrong(task: Task, knobs: Mapping[str, Value], row: Problem) -> str:
    """A completion similar to the answer of a task's problem, with a lower reward; empty if none is found."""
    made, answer = make_task(task, knobs), row.answer
    if isinstance(made, EnvironmentTask):
        return _lost(made, row)
    swapped, less = answer[:-2] + answer[:-3:-1], (answer[:-1], answer + answer[-1:])
    near = (swapped, *less) if answer.isalnum() else (answer[:-2], *less)
    return next((each for each in near if each and made.score(row, each).reward < _reward(made, row)), "")


def _lost(task: EnvironmentTask, row: Problem) -> str:
    """An episode by a simple player with a lower reward than the problem's own episode; empty if none is found."""
    rng = np.random.default_rng(0)
    for _ in range(TRIES):
        if (player := task.player(rng)) is None:
            break
        if (played := task.played(row, player)).score.reward < _reward(task, row):
            return played
    return ""


def _reward(task: TextTask, row: Problem) -> float:
    return task.score(row, row.answer).reward


def _template(spec: RunSpec, row: Problem | Pair | Single, reward: float) -> str:
    loop = spec.row.loop
    if isinstance(row, Single) and loop != "sft":
        return _SINGLE
    if isinstance(row, Pair) and loop in _PAIRS:
        return _PAIRS[loop]
    source = reward_words(spec.knobs).partition(". ")[0] if loop == "online" else ""
    if source:  # of the user's text, which may have braces, nothing is filled in
        source = re.sub(r" \([^()]*\)", "", source)  # the details stand below
        right = "; right is {answer}." if reward == 1 else "."
        return _SOURCE.replace("{source}", source.replace("{", "(").replace("}", ")")) + right
    said = of_task(spec.task_row, spec.knobs)
    return _LOOPS[loop].replace("{goal}", f" and {said}" if said.startswith("earns") else f", {said}")


def _of_answer(answer: str, knobs: Mapping[str, Value]) -> dict[str, Value | Quote]:
    """The parts of an answer that verifiers check, as the sentence shows them."""
    found, pattern = number(answer), str(knobs.get("pattern", ""))
    try:
        json_of(answer)
    except NotJSON:
        same = ""
    else:
        same = " that equals the answer's"
    return {"number": str(found), "letter": str(letter(answer)), "pattern": Quote(pattern),
            "wanted": Quote(pattern or answer.strip()), "same": same}
