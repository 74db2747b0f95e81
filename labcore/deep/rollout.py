"""Acting in many environments at once, and the experience that comes of it.

Advantages, values and log-probabilities are computed afterwards, on the whole batch at once: an environment step costs
one pass of the policy over E observations and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from labcore.deep.session import Session

T = TypeVar("T")
Choose = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Batch:
    """T steps of E environments. `next_observations` are those before any reset; `mask` is True where a step counts."""

    observations: Tensor  # (T, E, D) float32
    actions: Tensor  # (T, E) int64
    rewards: Tensor  # (T, E) float32
    next_observations: Tensor  # (T, E, D)
    terminated: Tensor  # (T, E) bool: V(s') = 0
    truncated: Tensor  # (T, E) bool: V(s') stays
    mask: Tensor  # (T, E) bool


@dataclass
class Episodes:
    """The returns of episodes under way, and of those that ended since the last `take`."""

    returns: np.ndarray
    lengths: np.ndarray
    ended: list[dict[str, float]] = field(default_factory=list)

    @staticmethod
    def none(count: int) -> Episodes:
        return Episodes(np.zeros(count), np.zeros(count, np.int64))

    def count(self, rewards: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, mask: np.ndarray,
              env_steps: int) -> None:
        """Add T steps, (T, E) each, of which the first began after `env_steps` steps of the run."""
        for t in range(len(rewards)):
            env_steps += int(mask[t].sum())
            self.returns += rewards[t] * mask[t]
            self.lengths += mask[t]
            for index in np.flatnonzero((terminated[t] | truncated[t]) & mask[t]):
                self.ended.append({"env_step": env_steps, "return": float(self.returns[index]),
                                   "length": int(self.lengths[index]), "truncated": bool(truncated[t, index])})
                self.returns[index], self.lengths[index] = 0, 0

    def take(self) -> list[dict[str, float]]:
        """The ended episodes, in order, which are then forgotten."""
        ended, self.ended = self.ended, []
        return ended


def spread(items: Sequence[T], most: int) -> list[T]:
    """At most `most` (two or more) of the items, evenly chosen, the first and the last among them.

    >>> spread("abcdefg", 3), spread("ab", 3)
    (['a', 'd', 'g'], ['a', 'b'])
    """
    if len(items) <= most:
        return list(items)
    return [items[round(place * (len(items) - 1) / (most - 1))] for place in range(most)]


def choose(logits: Tensor, uniforms: Tensor) -> Tensor:
    """a = #{k : u > Σ_{j≤k} π_j}, the inverse of the distribution function. (E, A), (E,) in [0, 1) -> int64 (E,)"""
    return (uniforms.unsqueeze(-1) > logits.softmax(-1).cumsum(-1)[..., :-1]).sum(-1)


def greedy(logits: Tensor, uniforms: Tensor) -> Tensor:
    """a = argmax_a z_a. (E, A), (E,) -> int64 (E,)"""
    return logits.argmax(-1)


def act(environments: Any, actions: Tensor) -> Any:
    """Step environments that take tensors (on a device) or numpy arrays."""
    return environments.step(actions.cpu().numpy() if isinstance(environments.observations, np.ndarray) else actions)


@torch.no_grad()
def collect(session: Session, steps: int, choose: Choose = choose, whole_episodes: bool = False) -> Batch:
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
    session.episodes.count(*(x.cpu().numpy() for x in (rewards, terminated, truncated, mask)), session.env_steps)
    session.env_steps += int(mask.sum())
    return batch


def stack(rows: Sequence[Any], device: torch.device) -> Tensor:
    """T arrays or tensors (E, ...) as one tensor (T, E, ...) on `device`."""
    return torch.from_numpy(np.stack(rows)).to(device) if isinstance(rows[0], np.ndarray) else torch.stack(tuple(rows))
