"""From experience to what policy gradients learn from: advantages, returns, the old policy; and the critic's fit.

A time limit bootstraps, a termination does not: see `labcore.maths.returns.gae_envs`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from labcore.deep.rollout import Batch
from labcore.maths.logprobs import selective_log_softmax
from labcore.maths.masked import masked_mean, masked_whiten
from labcore.maths.returns import explained_variance, gae_envs
from labcore.maths.surrogates import value_loss

if TYPE_CHECKING:
    from labcore.deep.session import Session


@dataclass(frozen=True)
class Lesson:
    """N steps that count, flat, with what the policy and the critic were before any update on them."""

    observations: Tensor  # (N, D)
    actions: Tensor  # (N,) int64
    old_logits: Tensor  # (N, A), normalised: log π_old(a)
    old_values: Tensor  # (N,) reward
    advantages: Tensor  # (N,) reward, or without a unit where normalised
    returns: Tensor  # (N,) reward: A + V before any normalisation, what the critic learns

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def old_logprobs(self) -> Tensor:
        """log π_old of the actions taken. (N,) nats"""
        return self.old_logits.gather(1, self.actions.unsqueeze(1)).squeeze(1)

    def select(self, rows: Tensor) -> Lesson:
        return Lesson(*(getattr(self, column.name)[rows] for column in fields(self)))


@torch.no_grad()
def values_of(session: Session, batch: Batch) -> tuple[Tensor, Tensor]:
    """V(s) and V(s') of a batch, before any reset. (T, E), (T, E)"""
    return session.critic(batch.observations)[..., 0], session.critic(batch.next_observations)[..., 0]


@torch.no_grad()
def lesson(session: Session, batch: Batch, advantages: Tensor | None = None) -> Lesson:
    """A batch with credit assigned: generalised advantages, or the `advantages` (T, E) given.

    The critic's returns are the same either way: A_GAE + V.
    """
    knobs = session.knobs
    values, next_values = values_of(session, batch)
    generalised = gae_envs(batch.rewards, values, next_values, batch.terminated, batch.truncated, knobs["gamma"],
                           knobs["gae_lambda"])
    mask = batch.mask
    psi = (generalised if advantages is None else advantages)[mask]
    if knobs["normalise"] and len(psi) > 1:
        psi = masked_whiten(psi, torch.ones_like(psi, dtype=torch.bool), eps=1e-8)
    observations = batch.observations[mask]
    return Lesson(observations, batch.actions[mask], session.policy(observations).log_softmax(-1), values[mask], psi,
                  (generalised + values)[mask])


def log_prob(session: Session, data: Lesson) -> Tensor:
    """log π of the actions taken. (N,) nats"""
    return selective_log_softmax(session.policy(data.observations), data.actions)


def categorical_kl(old_logits: Tensor, log_policy: Tensor) -> Tensor:
    """KL(π_old ‖ π) = Σ_a π_old (log π_old − log π), exact: actions are few. (N, A), (N, A) -> (N,) nats"""
    return (old_logits.exp() * (old_logits - log_policy)).sum(-1)


def critic_update(session: Session, data: Lesson, value_clip: float | None = None) -> float:
    """One update of the critic towards the returns. Returns its loss."""
    values = session.critic(data.observations)[:, 0]
    loss = value_loss(values, data.old_values, data.returns, torch.ones_like(values, dtype=torch.bool), value_clip)
    session.optimise("critic", session.knobs["critic_learning_rate"], loss)
    return float(loss.detach())


def fit_critic(session: Session, data: Lesson) -> dict[str, float]:
    """`critic_epochs` updates of the critic on the whole batch."""
    losses = [critic_update(session, data) for _ in range(int(session.knobs["critic_epochs"]))]
    return {"value_loss": sum(losses) / len(losses), **explained(data)}


def explained(data: Lesson) -> dict[str, float]:
    """How much of the returns the critic foresaw, before it learnt from them, and the size of its error."""
    everything = torch.ones_like(data.returns, dtype=torch.bool)
    share = explained_variance(data.old_values, data.returns, everything)
    return {"explained_variance": float(share),
            "td_error": float(masked_mean((data.returns - data.old_values).abs(), everything))}


def scatter(data: Lesson, points: int = 200) -> dict[str, list[float]]:
    """What the critic said and what came, for at most `points` steps evenly spread: a picture of its error."""
    return _spread({"values": data.old_values, "returns": data.returns}, points)


@torch.no_grad()
def ratios(session: Session, data: Lesson, points: int = 200) -> dict[str, list[float]]:
    """π/π_old as the updates left it, and the advantage, for at most `points` steps evenly spread."""
    ratio = (log_prob(session, data) - data.old_logprobs).exp()
    return _spread({"ratio": ratio, "advantage": data.advantages}, points)


def _spread(columns: dict[str, Tensor], points: int) -> dict[str, list[float]]:
    count = len(next(iter(columns.values())))
    rows = torch.linspace(0, count - 1, min(points, count)).long()
    return {name: column[rows.to(column.device)].double().cpu().numpy().round(4).tolist()
            for name, column in columns.items()}
