"""Policy gradients on fresh experience: REINFORCE with four choices of Ψ_t, and advantage actor-critic (A2C).

    ∇J = E Σ_t Ψ_t ∇ log π(a_t | s_t),   of which an update takes the mean over the N steps of its batch

REINFORCE learns from whole episodes, A2C from a few steps of many environments. Left out: asynchrony (A3C), a shared
trunk.

Source: Williams 1992, Machine Learning 8:229; Schulman et al. 2016, arXiv:1506.02438, eq. 1 (the choices of Ψ_t);
Mnih et al. 2016, arXiv:1602.01783.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from labcore.classic.deep.credit import TrainingBatch, critic_update, fit_critic, training_batch, values_of
from labcore.classic.deep.experience import Batch
from labcore.classic.deep.measures import explained, moved
from labcore.classic.deep.networks import MLP, flat
from labcore.classic.deep.record import record
from labcore.classic.deep.rollout import collect
from labcore.classic.deep.session import DeepSession
from labcore.maths import returns
from labcore.maths.call import call
from labcore.maths.surrogates import score_function
from labcore.runs.spec.session import Record


def total_return(rewards: Tensor, mask: Tensor, gamma: float) -> Tensor:
    """Ψ_t = Σ_{s≥0} γ^s r_s, the same for every step of an episode. (T, E), bool (T, E) -> (T, E)

    In reward. Without a critic nothing stands for what a time limit cut off.

    Source: Schulman et al. 2016, arXiv:1506.02438, eq. 1, choice 1.
    """
    return reward_to_go(rewards, mask, gamma)[:1].expand_as(rewards)


def reward_to_go(rewards: Tensor, mask: Tensor, gamma: float) -> Tensor:
    """Ψ_t = Σ_{s≥t} γ^{s−t} r_s: an action does not change the rewards before it. (T, E), bool (T, E) -> (T, E)

    In reward. Without a critic nothing stands for what a time limit cut off.

    Source: Schulman et al. 2016, arXiv:1506.02438, eq. 1, choice 2.
    """
    return returns.reward_to_go(torch.where(mask, rewards, 0).T, gamma).T


def baseline(rewards: Tensor, values: Tensor, next_values: Tensor, terminated: Tensor, truncated: Tensor,
             gamma: float) -> Tensor:
    """Ψ_t = Σ_{s≥t} γ^{s−t} r_s − V(s_t). (T, E) x 3, bool (T, E) x 2 -> (T, E)

    In reward. Where a time limit ended the episode, γ^n V(s_n) stands for the rest. It is GAE with λ = 1.

    Source: Schulman et al. 2016, arXiv:1506.02438, eq. 1, choice 3.
    """
    return returns.gae_envs(rewards, values, next_values, terminated, truncated, gamma, 1.0)


def advantage(rewards: Tensor, values: Tensor, next_values: Tensor, terminated: Tensor, truncated: Tensor,
              gamma: float, gae_lambda: float) -> Tensor:
    """Ψ_t = Σ_l (γλ)^l δ_{t+l}, generalised advantage estimation. (T, E) x 3, bool (T, E) x 2 -> (T, E)

    In reward.

    Source: Schulman et al. 2016, arXiv:1506.02438, eq. 16.
    """
    return returns.gae_envs(rewards, values, next_values, terminated, truncated, gamma, gae_lambda)


PSI = {function.__name__: function for function in (total_return, reward_to_go, baseline, advantage)}


def psi(session: DeepSession, batch: Batch, choice: str) -> Tensor:
    """Ψ_t of a batch, with the session's critic and knobs. (T, E)"""
    values, next_values = values_of(session, batch)
    weights: Tensor = call(PSI[choice], session.knobs, {**vars(batch), "values": values, "next_values": next_values})
    return weights


def gradient_variance(policy: MLP, batch: Batch, weights: Tensor) -> float:
    """tr Cov of g_i = Σ_t Ψ_t ∇ log π over the episodes i of one batch, unbiased. weights Ψ (T, E) -> number

    In reward². E episodes averaged have a gradient of that variance over E. Measured before any normalisation.
    """
    logprobs = policy.distribution(batch.observations).log_prob(batch.actions)
    sums = torch.where(batch.mask, score_function(logprobs, weights), 0).sum(0)  # (E,)
    parameters = list(policy.parameters())
    gradients = torch.stack([flat(torch.autograd.grad(one, parameters, retain_graph=True)) for one in sums])
    return float(gradients.var(0).sum())


def variances(session: DeepSession, batch: Batch) -> dict[str, float]:
    """The gradient variance of each choice of Ψ_t on the same batch."""
    return {f"gradient_variance/{choice}": gradient_variance(session.policy, batch, psi(session, batch, choice))
            for choice in PSI}


def policy_update(session: DeepSession, data: TrainingBatch) -> dict[str, float]:
    """One update of the policy: L = −mean Ψ log π − c_H mean H."""
    knobs = session.knobs
    policy = session.policy.distribution(data.observations)
    logprobs, entropy = policy.log_prob(data.actions), policy.entropy().mean()
    loss = -score_function(logprobs, data.advantages).mean() - knobs["entropy_coef"] * entropy
    norm = session.optimise("policy", knobs["learning_rate"], loss)
    session.updates += 1
    return {"policy_loss": float(loss.detach()), "entropy/action": float(entropy.detach()), "grad_norm": norm,
            **policy.spread(), "learning_rate": knobs["learning_rate"] * session.remaining}


def reinforce(session: DeepSession) -> Iterator[Record]:
    """Yield a Record for each batch of E whole episodes, on which one update is made."""
    while session.step < session.spec.steps:
        knobs = session.knobs
        batch = collect(session, session.environments.world.max_steps, whole_episodes=True)
        data = training_batch(session, batch, psi(session, batch, knobs["psi"]))
        measured = variances(session, batch) if session.step % int(knobs["variance_every"]) == 0 else {}
        metrics = policy_update(session, data) | moved(session, data)
        metrics |= {"value_loss": fit_critic(session, data), **explained(data)}
        yield record(session, {**metrics, **measured}, data=data)


def a2c(session: DeepSession) -> Iterator[Record]:
    """Yield a Record for each `rollouts_per_step` rollouts, with one update on each rollout. Its metrics are means over
    these updates."""
    while session.step < session.spec.steps:
        rows = []
        for _ in range(int(session.knobs["rollouts_per_step"])):
            data = training_batch(session, collect(session, int(session.knobs["rollout_steps"])))
            rows.append(policy_update(session, data) | moved(session, data) | explained(data)
                        | {"value_loss": critic_update(session, data)})
        yield record(session, {key: sum(row[key] for row in rows) / len(rows) for key in rows[0]}, data=data)
