"""Actions from the outputs of a network, and a step of the environments with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

Choose = Callable[[Tensor, Tensor], Tensor]


def choose(logits: Tensor, uniforms: Tensor) -> Tensor:
    """a = #{k : u > Σ_{j≤k} π_j}, the inverse of the distribution function. (E, A), (E,) in [0, 1) -> int64 (E,)"""
    return (uniforms.unsqueeze(-1) > logits.softmax(-1).cumsum(-1)[..., :-1]).sum(-1)


def greedy(logits: Tensor, uniforms: Tensor) -> Tensor:
    """a = argmax_a z_a. (E, A), (E,) -> int64 (E,)"""
    return logits.argmax(-1)


def act(environments: Any, actions: Tensor) -> Any:
    """Step environments that take tensors (on a device) or numpy arrays."""
    return environments.step(actions.cpu().numpy() if isinstance(environments.observations, np.ndarray) else actions)
