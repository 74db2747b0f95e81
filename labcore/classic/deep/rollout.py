"""Acting in many environments at once.

Advantages, values and log-probabilities are computed afterwards, on the whole batch at once: an environment step costs
one pass of the policy over E observations and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labcore.classic.deep.experience import Batch, Episodes
from labcore.classic.deep.session import DeepSession

# ---------------------------------------------------------------- acting
# Actions from the outputs of a network, and a step of the environments with them.

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


# ---------------------------------------------------------------- rollout

@torch.no_grad()
def collect(session: DeepSession, steps: int, choose: Choose = choose, whole_episodes: bool = False) -> Batch:
    """Act for `steps` steps in every environment, or for one episode in each.

    With `whole_episodes` all begin anew, and what follows an end in its environment does not count. A fixed number of
    episodes has no bias to short ones, which a fixed number of steps would have without a critic.
    """
    environments, policy, device = session.environments, session.acting, session.device
    if whole_episodes:
        environments.reset()
        session.episodes = Episodes(session.episodes.returns * 0, session.episodes.lengths * 0, session.episodes.ended)
    seen, taken, came, masks = [], [], [], []
    alive = torch.ones(environments.count, dtype=torch.bool, device=device)
    for t in range(steps):
        # Drawn in blocks: one call per step would cost as much as the environment.
        if t % 64 == 0:
            uniforms = torch.rand(min(64, steps - t), environments.count, generator=session.generator, device=device)
        observations = torch.as_tensor(environments.observations, device=device)
        actions = choose(policy(observations), uniforms[t % 64])
        step = act(environments, actions)
        seen.append(observations)
        taken.append(actions)
        came.append(step)
        if whole_episodes:
            masks.append(alive)
            alive = alive & ~torch.as_tensor(step.terminated | step.truncated, device=device)
            if not alive.any():
                break
    following, rewards, terminated, truncated = (stack(column, device) for column in zip(*came, strict=True))
    mask = torch.stack(masks) if masks else torch.ones_like(terminated)
    batch = Batch(torch.stack(seen), torch.stack(taken), rewards, following, terminated, truncated, mask)
    session.episodes.count(rewards.cpu().numpy(), terminated.cpu().numpy(), truncated.cpu().numpy(),
                           mask.cpu().numpy(), session.env_steps)
    session.env_steps += int(mask.sum())
    return batch


def stack(rows: Sequence[Any], device: torch.device) -> Tensor:
    """T arrays or tensors (E, ...) as one tensor (T, E, ...) on `device`."""
    return torch.from_numpy(np.stack(rows)).to(device) if isinstance(rows[0], np.ndarray) else torch.stack(tuple(rows))
