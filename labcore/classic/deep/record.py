"""The end of a step of a deep method: count it, evaluate the policy if it is due, and make the Record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labcore.classic.deep.credit import TrainingBatch
from labcore.classic.deep.evaluation import Evaluation, evaluate
from labcore.classic.deep.experience import spread
from labcore.classic.deep.measures import ratios, scatter, surrogates
from labcore.classic.deep.networks import parameters, put
from labcore.classic.deep.session import DeepSession
from labcore.classic.envs.planes import POINTS, plane_of
from labcore.maths.surrogates import clip, clip_cut, curve, sides
from labcore.runs.spec.session import Pictures, Record


@torch.no_grad()
def policy_map(session: DeepSession, path: list[list[float]]) -> dict[str, Any] | None:
    """The most likely action and its value at each point of the environment's plane, and the `path` of an episode on
    that plane; None if the environment has no plane. For continuous actions it is the mean of the first component,
    clipped to its bounds."""
    world = session.environments.world
    plane = plane_of(world)
    if plane is None:
        return None
    seen = torch.from_numpy(plane.observations()).to(session.device)
    outputs = session.acting(seen)
    chosen = session.acting.family.mode(outputs, outputs)
    action = chosen[:, 0].clamp(world.low[0], world.high[0]) if world.continuous else chosen
    values = session.critic(seen)[:, 0] if "critic" in session.networks else outputs.max(-1).values
    return {"names": list(plane.names), "axes": [np.round(axis, 5).tolist() for axis in plane.axes], "rest": plane.rest,
            "action": _grid(action), "value": _grid(values), "path": plane.path(path),
            "bounds": [world.low[0], world.high[0]] if world.continuous else None, "actions": world.actions}


def _grid(numbers: Tensor) -> list[list[float]]:
    rows: list[list[float]] = numbers.double().cpu().numpy().round(3).reshape(POINTS, POINTS).tolist()
    return rows


# ---------------------------------------------------------------- clip view
# What the clip does with the steps of a batch: which of them it cuts off, and its curve.


def clip_view(found: Mapping[str, list[float]], clip_low: float, clip_high: float) -> dict[str, Any]:
    """`found` ({"ratio", "advantage"} from `ratios`), with the side on which each step is clipped and the curve of the
    surrogate."""
    ratio, advantages = (torch.tensor(found[key], dtype=torch.float64) for key in ("ratio", "advantage"))
    bounds = {"clip_low": clip_low, "clip_high": clip_high}
    return {"ratios": {**found, "cut": sides(clip_cut(ratio, advantages, **bounds), ratio)},
            "surrogate": curve(clip, bounds, ratio)}


# ---------------------------------------------------------------- line
# The surrogates along the straight line from θ_old through θ_new: where a step could have gone.

ALPHAS = tuple(round(-0.5 + 0.1 * i, 1) for i in range(31))  # 0 is θ_old, 1 is θ_new
CURVES = {"kl/step": "kl", "surrogate/cpi": "cpi", "surrogate/clip": "clip", "surrogate/kl_penalised": "kl_penalised"}
EVERY = 5


def line_due(step: int) -> bool:
    """True if `step` draws a line: the first one, then every fifth after it."""
    return (step - 1) % EVERY == 0


@torch.no_grad()
def line(session: DeepSession, data: TrainingBatch, before: Tensor, bounds: Mapping[str, float]) -> dict[str, Any]:
    """KL(π_old ‖ π_α) and the surrogates at θ_old + α (θ_new − θ_old), on the batch of the last step. JSON-clean."""
    after = parameters(session.policy)
    curves: dict[str, list[float]] = {}
    for alpha in ALPHAS:
        put(session.policy, before + alpha * (after - before))
        found = surrogates(session.policy.distribution(data.observations), data, bounds)
        for key, label in CURVES.items():
            curves.setdefault(label, []).append(found[key])
    put(session.policy, after)
    return {"step": session.step, "alpha": list(ALPHAS), **curves, **bounds}


# ---------------------------------------------------------------- record

SHOWN = 200  # episodes of a step that are kept one by one


def record(session: DeepSession, metrics: Mapping[str, float], data: TrainingBatch | None = None,
           clip: tuple[float, float] | None = None, draw: Callable[[], dict[str, Any]] | None = None) -> Record:
    """Close a step: count it, evaluate the policy if it is due, keep the best weights, and make the Record with its
    metrics and pictures.

    `data` is the batch that the critic learnt from, if there is a critic. `clip` is the annealed clip range of the
    updates, if they had one. `draw` makes the line through the policy's update, if the policy moved.
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
    due = draw is not None and line_due(session.step)

    def look() -> Pictures:
        seen = samples if evaluated else samples | _pictures(session, evaluate(session), data, clip)
        return seen, draw() if draw else None

    return Record(session.step, 0, kept, session.env_steps, samples if evaluated or ended else None,
                  draw() if draw and due else None, None if evaluated and (due or draw is None) else look)


def _pictures(session: DeepSession, evaluation: Evaluation, data: TrainingBatch | None,
              clip: tuple[float, float] | None) -> dict[str, Any]:
    """The pictures of the policy as it is: an episode of it, the critic, the ratios and the clip."""
    seen: dict[str, Any] = {"evaluation": evaluation.shown, "map": policy_map(session, evaluation.path)}
    if data is not None:
        seen |= {"scatter": scatter(data), "ratios": ratios(session, data)}
        seen |= {"clip": list(clip), **clip_view(seen["ratios"], *clip)} if clip else {}
    return seen
