"""Pairs of completions that nobody has judged yet: for a person to choose from, or for the task's gold score.

Both sides are what a model samples now, in the order in which they were drawn, so neither place says anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from labcore.catalog.llm.models import MODELS
from labcore.errors import LabError
from labcore.jobs.models import Source, base_folder
from labcore.llm.generation import Sampling, generate
from labcore.llm.probes.answer import whole
from labcore.llm.probes.answer_session import reader, session_on
from labcore.llm.session import LlmSession
from labcore.spec.model_names import parse
from labcore.spec.run_spec import RunSpec, base_spec
from labcore.tasks.task import Pair, PairTask, make_task

MOST = 4096
SAMPLES = 4  # completions of a prompt among which two different ones are looked for
ROUNDS = 4  # times as many prompts as pairs are tried, at most
AT_ONCE = 64  # prompts
STREAM = 2**32 + 5  # a tag that no step of a run has, as of the other probes


def pairs_to_label(spec: Mapping[str, Any]) -> dict[str, Any]:
    """`count` pairs of different completions, drawn by `seed`: {model, pairs: [{prompt, a, b, a_truncated, …}]}.

    They are sampled from `model` (RUN, RUN@STEP or base:RUN) with its run's settings; or without one for `spec`, a
    RunSpec as JSON: from the base that its run would start from, or where that one is still to be made, from the
    pairs that the task itself brings. There are fewer where the model hardly varies its completions.

    Raises:
        LabError: the model, its task's file or the device cannot be used; or there is nothing to sample from, or no
            two completions differ.
    """
    count, seed = whole(spec, "count", 1, MOST), whole(spec, "seed", 0, 2**31 - 1)
    session, name = _asked(spec, seed)
    rng = np.random.default_rng((seed, STREAM))
    pairs = _sampled(session, count, rng) if session else _own(RunSpec.from_json(str(spec["spec"])), count, rng)
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


def _sampled(session: LlmSession, count: int, rng: np.random.Generator) -> list[Pair]:
    """Pairs of the first two different completions of a prompt."""
    pairs: list[Pair] = []
    for _ in range(0, ROUNDS * count, AT_ONCE):
        problems = session.task.problems(min(AT_ONCE, session.task.size or AT_ONCE), rng)
        generated = generate(session, session.policy, problems, SAMPLES, Sampling.of(session.knobs))
        cut = generated.completions.truncated.tolist()
        for index, problem in enumerate(problems):
            first = index * SAMPLES
            found = next((row for row in range(first, first + SAMPLES)
                          if generated.texts[row] != generated.texts[first]), None)
            if found is not None:
                pairs.append(Pair(problem.prompt, generated.texts[first], generated.texts[found], problem.line,
                                  cut[first], cut[found], problem.answer))
        if len(pairs) >= count:
            break
    return pairs[:count]


def _own(run: RunSpec, count: int, rng: np.random.Generator) -> list[Pair]:
    """Pairs that the task brings, in an order that does not tell its labels."""
    task = make_task(run.task_row, run.knobs, run.data)
    assert isinstance(task, PairTask), "a task that brings pairs"
    return [replace(pair, chosen=pair.rejected, rejected=pair.chosen) if rng.random() < 0.5 else pair
            for pair in task.pairs(count, rng)]


def _shown(pair: Pair) -> dict[str, Any]:
    return {"prompt": pair.prompt, "a": pair.chosen, "b": pair.rejected, "a_truncated": pair.chosen_truncated,
            "b_truncated": pair.rejected_truncated, "answer": pair.answer, "line": pair.line}
