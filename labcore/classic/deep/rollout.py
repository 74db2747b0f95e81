"""Acting in many environments at once.

Advantages, values and log-probabilities are computed afterwards, on the whole batch at once: an environment step costs
one pass of the policy over E observations and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labcore.classic.deep.distributions import Choose
from labcore.classic.deep.experience import Batch, Episodes
from labcore.classic.deep.session import DeepSession


def act(environments: Any, actions: Tensor) -> Any:
    """Step environments that take tensors (on a device) or numpy arrays."""
    return environments.step(actions.cpu().numpy() if isinstance(environments.observations, np.ndarray) else actions)


@torch.no_grad()
def collect(session: DeepSession, steps: int, choose: Choose | None = None, whole_episodes: bool = False) -> Batch:
    """Act for `steps` steps in every environment, or for one episode in each, with actions that the policy samples, or
    that `choose` gives.

    With `whole_episodes` every environment begins a new episode, and its steps after the end of that episode do not
    count. A fixed number of episodes is not biased towards short ones; without a critic, a fixed number of steps would
    be.
    """
    environments, policy, device = session.environments, session.acting, session.device
    choose = choose or policy.family.sample
    for network in session.standardised:
        network.take()
    if whole_episodes:
        environments.reset()
        if session.reward_scale is not None:
            session.reward_scale.returns *= 0
        session.episodes = Episodes(session.episodes.returns * 0, session.episodes.lengths * 0, session.episodes.ended)
    seen, taken, came, masks = [], [], [], []
    alive = torch.ones(environments.count, dtype=torch.bool, device=device)
    for t in range(steps):
        # Drawn in blocks: one call per step would cost as much as the environment.
        observations = torch.as_tensor(environments.observations, device=device)
        outputs = policy(observations)
        if t % 64 == 0:
            noise = policy.family.noise((min(64, steps - t), environments.count), outputs.shape[-1], session.generator)
        actions = choose(outputs, noise[t % 64])
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
    batch = Batch(torch.stack(seen), torch.stack(taken), _scaled(session, rewards, terminated | truncated), following,
                  terminated, truncated, mask)
    for network in session.standardised:
        network.see(batch.observations[mask])
    session.episodes.count(rewards.cpu().numpy(), terminated.cpu().numpy(), truncated.cpu().numpy(),
                           mask.cpu().numpy(), session.env_steps)
    session.env_steps += int(mask.sum())
    return batch


def _scaled(session: DeepSession, rewards: Tensor, ended: Tensor) -> Tensor:
    """The rewards to learn from: as they came, or divided by the spread of the returns. (T, E), bool (T, E)"""
    if session.reward_scale is None:
        return rewards
    scaled = session.reward_scale.scaled(rewards.cpu().numpy(), ended.cpu().numpy(), session.knobs["gamma"])
    return torch.from_numpy(scaled).to(rewards.device)


def stack(rows: Sequence[Any], device: torch.device) -> Tensor:
    """T arrays or tensors (E, ...) as one tensor (T, E, ...) on `device`."""
    return torch.from_numpy(np.stack(rows)).to(device) if isinstance(rows[0], np.ndarray) else torch.stack(tuple(rows))
