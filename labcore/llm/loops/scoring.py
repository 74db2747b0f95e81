"""The end of a step of a network that learns to score: a reward model, or a process reward model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from labcore.llm.probes import view
from labcore.llm.session import LlmSession
from labcore.runs.spec.session import Pictures, Record

Evaluation = tuple[dict[str, float], dict[str, Any]]  # metrics and samples


def record(session: LlmSession, metrics: dict[str, float], measure: Callable[[LlmSession], Evaluation],
           at_end: bool) -> Record:
    """Complete the step whose update has these metrics. `measure` evaluates held-out rows: after the first update, then
    every so many, and with `at_end` after the last."""
    session.step += 1
    last, samples = at_end and session.step == session.spec.steps, None
    if last or session.step == 1 or session.step % int(session.knobs["eval_every"]) == 0:
        evaluated, samples = measure(session)
        metrics = metrics | evaluated
    metrics = metrics | {"updates": session.updates, "num_tokens": session.tokens}
    look = partial(_look, replace(session, knobs=dict(session.knobs), notes=[]), measure)
    return Record(session.step, session.tokens, metrics, samples=samples,
                  look=None if samples or view.limited(session) else look)


def _look(session: LlmSession, measure: Callable[[LlmSession], Evaluation]) -> Pictures:
    return measure(session)[1], None
