"""The end of a step of a deep method: counted, evaluated where it is time, and put together as a Record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

from labcore.deep import line
from labcore.deep.clip_view import clip_view
from labcore.deep.credit import TrainingBatch
from labcore.deep.evaluation import Evaluation, evaluate
from labcore.deep.experience import spread
from labcore.deep.measures import ratios, scatter
from labcore.deep.session import DeepSession
from labcore.spec.record import Pictures, Record

SHOWN = 200  # episodes of a step that are kept one by one


def record(session: DeepSession, metrics: Mapping[str, float], data: TrainingBatch | None = None,
           clip: tuple[float, float] | None = None, draw: Callable[[], dict[str, Any]] | None = None) -> Record:
    """Close a step: count it, evaluate if it is time, keep the best weights, and put numbers and pictures together.

    `data` is the batch that the critic learnt from, where there is a critic; `clip` the annealed clip range that its
    updates had, where they had one; `draw` makes the line through the policy's update, where it moved.
    """
    session.step += 1
    ended = session.episodes.take()
    own: dict[str, float] = {"updates": session.updates, "episodes": len(ended)}
    if ended:
        own["episode_return"] = sum(episode["return"] for episode in ended) / len(ended)
        own["episode_length"] = sum(episode["length"] for episode in ended) / len(ended)
    samples: dict[str, Any] = {"step": session.step, "episodes": spread(ended, SHOWN), "ended": len(ended)}
    evaluated = session.step in (1, session.spec.steps) or session.step % int(session.knobs["eval_every"]) == 0
    if evaluated:
        evaluation = evaluate(session)
        own |= evaluation.metrics
        samples |= _pictures(session, evaluation, data, clip)
        if session.best_return is None or evaluation.mean >= session.best_return:
            session.best_return, session.best_step = evaluation.mean, session.step
            session.best = {name: value.clone() for name, value in session.acting.state_dict().items()}
    samples["best"] = {"step": session.best_step, "return": session.best_return}
    kept = {key: float(value) for key, value in {**own, **metrics}.items() if isfinite(value)}
    due = draw is not None and line.due(session.step)

    def look() -> Pictures:
        seen = samples if evaluated else samples | _pictures(session, evaluate(session), data, clip)
        return seen, draw() if draw else None

    return Record(session.step, 0, kept, session.env_steps, samples if evaluated or ended else None,
                  draw() if draw and due else None, None if evaluated and (due or draw is None) else look)


def _pictures(session: DeepSession, evaluation: Evaluation, data: TrainingBatch | None,
              clip: tuple[float, float] | None) -> dict[str, Any]:
    """What there is to see of the policy as it is: an episode of it, the critic, the ratios and the clip."""
    seen: dict[str, Any] = {"evaluation": evaluation.shown}
    if data is not None:
        seen |= {"scatter": scatter(data), "ratios": ratios(session, data)}
        seen |= {"clip": list(clip), **clip_view(seen["ratios"], *clip)} if clip else {}
    return seen
