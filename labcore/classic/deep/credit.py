"""Turn experience into the training data of policy gradients (advantages, returns, the old policy), and fit the critic.

A time limit bootstraps, a termination does not: see `labcore.maths.returns.gae_envs`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from labcore.classic.deep.distributions import Distribution
from labcore.classic.deep.experience import Batch
from labcore.classic.deep.session import DeepSession
from labcore.maths.masked import masked_whiten
from labcore.maths.returns import gae_envs
from labcore.maths.surrogates import value_loss


@dataclass(frozen=True)
class TrainingBatch:
    """N steps that count, in one row, with the outputs of the policy and the critic before any update on them."""

    observations: Tensor  # (N, D)
    actions: Tensor  # (N,) int64, or (N, A) float32 where they are continuous
    old: Distribution  # π_old(·|s)
    old_values: Tensor  # (N,) reward
    advantages: Tensor  # (N,) reward, or without a unit where normalised
    returns: Tensor  # (N,) reward: A_GAE + V before any normalisation, the critic's target

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def old_logprobs(self) -> Tensor:
        """log π_old of the actions taken. (N,) nats"""
        return self.old.log_prob(self.actions)

    def select(self, rows: Tensor) -> TrainingBatch:
        return TrainingBatch(*(getattr(self, column.name)[rows] for column in fields(self)))


@torch.no_grad()
def values_of(session: DeepSession, batch: Batch) -> tuple[Tensor, Tensor]:
    """V(s) and V(s') of a batch, before any reset. (T, E), (T, E)"""
    return session.critic(batch.observations)[..., 0], session.critic(batch.next_observations)[..., 0]


@torch.no_grad()
def training_batch(session: DeepSession, batch: Batch, weights: Tensor | None = None) -> TrainingBatch:
    """The steps that count, with credit assigned: advantages by GAE, or the `weights` Ψ (T, E) in their place.

    The critic's returns are the same either way: A_GAE + V.
    """
    knobs = session.knobs
    values, next_values = values_of(session, batch)
    generalised = gae_envs(batch.rewards, values, next_values, batch.terminated, batch.truncated, knobs["gamma"],
                           knobs["gae_lambda"])
    mask = batch.mask
    advantages = (generalised if weights is None else weights)[mask]
    if knobs["normalise"] and len(advantages) > 1:
        advantages = masked_whiten(advantages, torch.ones_like(advantages, dtype=torch.bool), eps=1e-8)
    observations = batch.observations[mask]
    return TrainingBatch(observations, batch.actions[mask], session.policy.distribution(observations), values[mask],
                         advantages, (generalised + values)[mask])


def log_prob(session: DeepSession, data: TrainingBatch) -> Tensor:
    """log π of the actions taken. (N,) nats"""
    return session.policy.distribution(data.observations).log_prob(data.actions)


def critic_update(session: DeepSession, data: TrainingBatch, value_clip: float | None = None) -> float:
    """One update of the critic towards the returns. Returns its loss."""
    values = session.critic(data.observations)[:, 0]
    loss = value_loss(values, data.old_values, data.returns, torch.ones_like(values, dtype=torch.bool), value_clip)
    session.optimise("critic", session.knobs["critic_learning_rate"], loss)
    return float(loss.detach())


def fit_critic(session: DeepSession, data: TrainingBatch) -> float:
    """`critic_epochs` updates of the critic on the whole batch. Returns the mean of their losses."""
    losses = [critic_update(session, data) for _ in range(int(session.knobs["critic_epochs"]))]
    return sum(losses) / len(losses)
