"""Before a run on the user's own file: a few of its prompts, answered by the model that the run would start from.

Where the base is still to be made by SFT, that is the model before SFT.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from labcore.catalog.llm.models import MODELS
from labcore.llm.generation import Sampling, generate
from labcore.llm.probes.answer import session_on
from labcore.llm.rendering import Asked
from labcore.llm.session import LlmSession
from labcore.runs.files import bases
from labcore.runs.models import Source
from labcore.runs.spec.run_spec import RunSpec
from labcore.tasks.task import Problem

DRAWN = 8  # times as many prompts as are wanted are looked at for some that fit the context
STREAM = 2**32 + 3  # a tag that no step of a run has, as of the other probes


def first_answers(spec: Mapping[str, Any]) -> dict[str, Any]:
    """One answer to each of `count` prompts of the file of `spec` (a RunSpec as JSON), on the base named `base`.

    `longest` is the longest prompt in tokens of the model, `context` the tokens that a prompt and its completion may
    take together. Prompts that do not fit are left out. An answer is `truncated` where it was cut at the length limit.
    Raises LabError if the model, the file or the device cannot be used.
    """
    run = RunSpec.from_json(str(spec["spec"]))
    base = bases.readable(spec["base"]) if spec["base"] else None
    given = None if run.model in MODELS else run.model
    session = session_on(Source(run, weights=str(base / "model") if base else given), {}, run.seed)
    problems = _fitting(session, int(spec["count"]))
    found = generate(session, session.policy, problems, 1, Sampling.of(session.knobs)) if problems else None
    texts, cut = (found.texts, found.completions.truncated.tolist()) if found else ([], [])
    scores = [session.task.score(problem, text) for problem, text in zip(problems, texts, strict=True)]
    return {"context": session.context, "longest": _longest(session), **_template(session), "answers": [
        {"prompt": problem.prompt, "answer": problem.answer, "text": text, "reward": score.reward, "exact": score.exact,
         "truncated": truncated} for problem, text, score, truncated in zip(problems, texts, scores, cut, strict=True)]}


def _template(session: LlmSession) -> dict[str, bool]:
    """The model has a chat template, and the prompts are written by one: each true or false."""
    return {"has_template": bool(getattr(session.tokenizer, "chat_template", None)),
            "templated": session.rendering.template is not None}


def _fitting(session: LlmSession, count: int) -> list[Problem]:
    room = session.context - int(session.knobs["max_new_tokens"])
    drawn = session.task.problems(min(DRAWN * count, session.task.size or DRAWN * count),
                                  np.random.default_rng((session.spec.seed, STREAM)))
    return [problem for problem in drawn if _tokens(session, problem) <= room][:count]


def _longest(session: LlmSession) -> int:
    """The most tokens that a prompt of the file has, looked for among those with the most characters."""
    rows = sorted(getattr(session.task, "rows", ()), key=lambda row: -len(row.prompt))[:64]
    return max((_tokens(session, row) for row in rows), default=int(session.knobs.get("prompt_length", 0)))


def _tokens(session: LlmSession, row: Asked) -> int:
    return len(session.rendering.prompts([row])[0])
