"""Pairs of completions without a label, for a person or the task's gold score to label.

Models sample both sides when they are asked for. The position of a side says nothing about it: completions of one model
are in the order in which they were drawn, those of two models in random order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from labcore.catalog.llm.models import MODELS
from labcore.errors import LabError
from labcore.llm.generation import Generated, Sampling, generate
from labcore.llm.probes.answer import reader, session_on, whole
from labcore.llm.session import LlmSession
from labcore.runs.models import Source, base_folder
from labcore.runs.spec.model_names import parse
from labcore.runs.spec.run_spec import RunSpec, base_spec
from labcore.tasks.task import Pair, PairTask, Problem, make_task

MOST = 4096
SAMPLES = 4  # completions of a prompt among which two different ones are looked for
ROUNDS = 4  # times as many prompts as pairs are tried, at most
AT_ONCE = 64  # prompts
STREAM = 2**32 + 5  # a tag that no step of a run has, as of the other probes


def pairs_to_label(spec: Mapping[str, Any]) -> dict[str, Any]:
    """`count` pairs of different completions, drawn by `seed`: {model, pairs: [{prompt, a, b, a_truncated, …}]}.

    They are sampled from `model` (RUN, RUN@STEP or base:RUN) with its run's settings; or without one for `spec`, a
    RunSpec as JSON: from the base that its run would start from, or where that one is still to be made, from the
    pairs that the task itself brings. One side of each is that of the model `against`, where one is named. There are
    fewer where the completions hardly vary. Raises LabError if the model, its task's file or the device cannot be used;
    or there is nothing to sample from, or no two completions differ.
    """
    count, seed = whole(spec, "count", 1, MOST), whole(spec, "seed", 0, 2**31 - 1)
    session, name = _asked(spec, seed)
    other = reader(parse(str(spec["against"])).pinned.name, {}, seed + 1) if spec.get("against") else session
    rng = np.random.default_rng((seed, STREAM))
    if session is None or other is None:
        pairs = _own(RunSpec.from_json(str(spec["spec"])), count, rng)
    else:
        pairs = _sampled(session, other, count, rng)
    if not pairs:
        raise LabError("All completions of a prompt are the same text, so there is nothing to choose between: sample "
                       "from an earlier checkpoint, or at a higher temperature.")
    return {"model": name, "pairs": [_shown(pair) for pair in pairs]}


def _asked(spec: Mapping[str, Any], seed: int) -> tuple[LlmSession | None, str]:
    """Who is to be sampled from, and its name; nobody where the base is still to be made and the task has pairs."""
    if spec.get("model"):
        name = parse(str(spec["model"])).pinned.name
        return reader(name, {}, seed), name
    run = RunSpec.from_json(str(spec["spec"]))
    try:
        base = base_folder(run)
    except LabError:
        if run.task_row.pairs:
            return None, ""
        raise
    given = None if run.model in MODELS else run.model
    made = base_spec(run)
    return session_on(Source(run, weights=str(base) if base else given), {}, seed), made.hash() if made else run.model


def _sampled(session: LlmSession, other: LlmSession, count: int, rng: np.random.Generator) -> list[Pair]:
    """Pairs of each prompt's first completion and the first one of the other session's that differs from it."""
    pairs: list[Pair] = []
    for _ in range(0, ROUNDS * count, AT_ONCE):
        problems = session.task.problems(min(AT_ONCE, session.task.size or AT_ONCE), rng)
        one = generate(session, session.policy, problems, SAMPLES, Sampling.of(session.knobs))
        two = one if other is session else generate(other, other.policy, problems, SAMPLES, Sampling.of(session.knobs))
        for index, problem in enumerate(problems):
            rows = range(index * SAMPLES, (index + 1) * SAMPLES)
            found = next((row for row in rows if two.texts[row] != one.texts[rows[0]]), None)
            if found is not None:
                sides = (one, rows[0]), (two, found)
                pairs.append(_pair(problem, *(reversed(sides) if two is not one and rng.random() < 0.5 else sides)))
        if len(pairs) >= count:
            break
    return pairs[:count]


def _pair(problem: Problem, first: tuple[Generated, int], second: tuple[Generated, int]) -> Pair:
    (one, a), (two, b) = first, second
    return Pair(problem.prompt, one.texts[a], two.texts[b], problem.line, bool(one.completions.truncated[a]),
                bool(two.completions.truncated[b]), problem.answer, problem.turns)


def _own(run: RunSpec, count: int, rng: np.random.Generator) -> list[Pair]:
    """Pairs that the task brings, in an order that does not tell its labels."""
    task = make_task(run.task_row, run.knobs, run.data)
    assert isinstance(task, PairTask), "a task that brings pairs"
    return [replace(pair, chosen=pair.rejected, rejected=pair.chosen) if rng.random() < 0.5 else pair
            for pair in task.pairs(count, rng)]


def _shown(pair: Pair) -> dict[str, Any]:
    return {"prompt": pair.prompt, "a": pair.chosen, "b": pair.rejected, "a_truncated": pair.chosen_truncated,
            "b_truncated": pair.rejected_truncated, "answer": pair.answer, "line": pair.line,
            **({"turns": [turn._asdict() for turn in pair.turns]} if pair.turns else {})}
