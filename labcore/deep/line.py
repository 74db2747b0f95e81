"""The surrogates along the straight line from θ_old through θ_new: where a step could have gone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from labcore.deep.credit import TrainingBatch
from labcore.deep.measures import surrogates
from labcore.deep.networks import parameters, put
from labcore.deep.session import DeepSession

ALPHAS = tuple(round(-0.5 + 0.1 * i, 1) for i in range(31))  # 0 is θ_old, 1 is θ_new
CURVES = {"kl/step": "kl", "surrogate/cpi": "cpi", "surrogate/clip": "clip",
          "surrogate/kl_penalised": "kl_penalised"}
EVERY = 5


def due(step: int) -> bool:
    """Whether `step` draws a line: the first one, then every fifth after it."""
    return (step - 1) % EVERY == 0


@torch.no_grad()
def line(session: DeepSession, data: TrainingBatch, before: Tensor, bounds: Mapping[str, float]) -> dict[str, Any]:
    """KL(π_old ‖ π_α) and the surrogates at θ_old + α (θ_new − θ_old), on the batch of the last step. JSON-clean."""
    after = parameters(session.policy)
    curves: dict[str, list[float]] = {}
    for alpha in ALPHAS:
        put(session.policy, before + alpha * (after - before))
        found = surrogates(session.policy(data.observations).log_softmax(-1), data, bounds)
        for key, curve in CURVES.items():
            curves.setdefault(curve, []).append(found[key])
    put(session.policy, after)
    return {"step": session.step, "alpha": list(ALPHAS), **curves, **bounds}
