"""The outputs of the acting network and the critic at every place of a plane of the observations, as JSON to draw."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from labcore.classic.deep.session import DeepSession
from labcore.classic.envs.planes import POINTS, plane_of


@torch.no_grad()
def policy_map(session: DeepSession, path: list[list[float]]) -> dict[str, Any] | None:
    """The likeliest action and its value on the world's plane, and the `path` of an episode on it; None where the world
    has no plane. Of continuous actions the mean of the first number, clipped to its bounds.
    """
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
