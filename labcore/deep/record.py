"""The end of a step of a deep method: counted, evaluated where it is time, and put together as a Record."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from labcore.deep.clip_view import clip_view
from labcore.deep.credit import TrainingBatch
from labcore.deep.evaluation import evaluate
from labcore.deep.experience import spread
from labcore.deep.measures import ratios, scatter
from labcore.deep.session import DeepSession
from labcore.spec.record import Record

SHOWN = 200  # episodes of a step that are kept one by one


def record(session: DeepSession, metrics: Mapping[str, float], line: dict[str, Any] | None = None,
           data: TrainingBatch | None = None, clip: tuple[float, float] | None = None) -> Record:
    """Close a step: count it, evaluate if it is time, keep the best weights, and put numbers and pictures together.

    `data` is the batch that the critic learnt from, where there is a critic; `clip` the annealed clip range that its
    updates had, where they had one.
    """
    session.step += 1
    ended = session.episodes.take()
    own: dict[str, float] = {"updates": session.updates, "episodes": len(ended)}
    if ended:
        own["episode_return"] = sum(episode["return"] for episode in ended) / len(ended)
        own["episode_length"] = sum(episode["length"] for episode in ended) / len(ended)
    samples: dict[str, Any] = {"step": session.step, "episodes": spread(ended, SHOWN), "ended": len(ended)}
    if session.step == 1 or session.step % int(session.knobs["eval_every"]) == 0 or session.step == session.spec.steps:
        evaluation = evaluate(session)
        own |= evaluation.metrics
        samples["evaluation"] = evaluation.shown
        if data is not None:
            samples |= {"scatter": scatter(data), "ratios": ratios(session, data)}
            samples |= {"clip": list(clip), **clip_view(samples["ratios"], *clip)} if clip else {}
        if session.best_return is None or evaluation.mean >= session.best_return:
            session.best_return, session.best_step = evaluation.mean, session.step
            session.best = {name: value.clone() for name, value in session.acting.state_dict().items()}
    samples["best"] = {"step": session.best_step, "return": session.best_return}
    kept = {key: float(value) for key, value in {**own, **metrics}.items() if isfinite(value)}
    return Record(session.step, 0, kept, session.env_steps, samples if "evaluation" in samples or ended else None, line)
