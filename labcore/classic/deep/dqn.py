"""Deep Q-learning: learn Q from replayed transitions towards targets made by a slower copy of the network.

    y = Σ_{k<m} γ^k r_{t+k} + γ^m (1 − terminated) Q_target(s_{t+m}, a*),  m = n, or fewer where the episode ends before
    a* = argmax_a Q_target(s_{t+m}, a), or argmax_a Q(s_{t+m}, a) in double DQN
    L = mean loss(Q(s_t, a_t) − y)

The slow copy also acts, greedily but for ε: it is a running average of the networks, and its best actions do not jump
from update to update, as those of Q itself do. Left out: prioritised replay, dueling heads, corrections for the actions
of older policies within the n steps.

Four defaults keep Q learning and keep what it has learnt. The inputs of the last hidden units are normalised: without
that, large early errors drive units to where relu gives 0 for every state, and no gradient brings them back. 25 to 45 %
of these units were dead in the runs that stayed below 475. With n = 1 errors of Q add up to 1/(1 − γ) = 100 times
their size; with n = 16 to 1/(1 − γ¹⁶) = 7 times. The n steps are those of the policy that acted, so the replay is short
and fresh. And the loss is the squared one: an end is a rare transition whose error may be as large as Q. Huber's loss
gives it the gradient of an error of 1, and it is outvoted: Q stayed at 65 where the cart leaves the track, for a target
of 1.

Source: Mnih et al. 2013, arXiv:1312.5602; Mnih et al. 2015, Nature 518; van Hasselt et al. 2016, arXiv:1509.06461;
Hessel et al. 2018, arXiv:1710.02298 (n steps); Fedus et al. 2020, arXiv:2007.06700 (n steps and the age of the replay);
Obando-Ceron and Castro 2021, arXiv:2011.14826 (squared errors with Adam); Gallici et al. 2024, arXiv:2407.04811 (layer
normalisation keeps temporal differences stable); Sokar et al. 2023, arXiv:2302.12902 (units that go dead).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss, smooth_l1_loss

from labcore.classic.deep.distributions import Choose
from labcore.classic.deep.experience import Batch, Transitions
from labcore.classic.deep.record import record
from labcore.classic.deep.rollout import collect
from labcore.classic.deep.session import DeepSession
from labcore.runs.spec.session import Record


def target(rewards: Tensor, terminated: Tensor, next_q_target: Tensor, gamma: float | Tensor,
           next_q: Tensor | None = None) -> Tensor:
    """y = r + γ (1 − terminated) Q_target(s', a*). (B,), bool (B,), (B, A), () or (B,), (B, A) -> (B,)

    Of m steps r is their discounted sum, γ stands for γ^m and s' is what follows them. a* maximises `next_q` (double
    DQN), or where that is None Q_target itself. In reward.

    Source: Mnih et al. 2015, eq. 1; van Hasselt et al. 2016, arXiv:1509.06461, eq. 4.
    """
    best = (next_q_target if next_q is None else next_q).argmax(1, keepdim=True)
    return rewards + gamma * torch.where(terminated, 0, next_q_target.gather(1, best).squeeze(1))


def n_step(batch: Batch, n: int, gamma: float) -> Transitions:
    """R_t = Σ_{k<m} γ^k r_{t+k}, s_{t+m}, whether s_{t+m} is an end, and m. (T, E) steps -> (T, E) transitions

    m is n, or smaller if the episode or the batch ends earlier.

    Source: Hessel et al. 2018, arXiv:1710.02298, "Multi-step learning".
    """
    steps = len(batch.rewards)
    place = torch.arange(steps, device=batch.rewards.device).unsqueeze(1)
    ends = torch.where(batch.terminated | batch.truncated, place, steps - 1).flip(0).cummin(0).values.flip(0)
    last = torch.minimum(ends, place + n - 1)
    rewards = batch.rewards.clone()
    for k in range(1, min(n, steps)):
        rewards[:-k] += gamma**k * batch.rewards[k:] * (place[:-k] + k <= last[:-k])
    following = batch.next_observations.gather(0, last.unsqueeze(-1).expand_as(batch.next_observations))
    return Transitions(batch.observations, batch.actions, rewards, following, batch.terminated.gather(0, last),
                       last - place + 1)


def huber(q: Tensor, targets: Tensor) -> Tensor:
    """L = mean ½δ² where |δ| < 1, else |δ| − ½; δ = Q − y. (B,), (B,) -> ()

    Source: Mnih et al. 2015, "Training details" (errors clipped to ±1).
    """
    return smooth_l1_loss(q, targets)


def mse(q: Tensor, targets: Tensor) -> Tensor:
    """L = mean ½(Q − y)²: Huber's, without its bend. (B,), (B,) -> ()"""
    return mse_loss(q, targets) / 2


LOSSES = {"huber": huber, "mse": mse}


@torch.no_grad()
def polyak(target_network: nn.Module, network: nn.Module, tau: float) -> None:
    """θ_target ← (1 − τ) θ_target + τ θ; τ = 1 copies.

    Source: Lillicrap et al. 2015, arXiv:1509.02971, algorithm 1.
    """
    for slow, fast in zip(target_network.parameters(), network.parameters(), strict=True):
        slow.lerp_(fast, tau)


def linear_epsilon(progress: float, start: float, end: float, share: float) -> float:
    """ε = ε_0 + (ε_1 − ε_0) min(1, p / share), with p from 0 to 1 over the run.

    >>> linear_epsilon(0.08, 1.0, 0.04, 0.16)
    0.52
    """
    return start + (end - start) * min(1.0, progress / share if share else 1.0)


def epsilon_greedy(epsilon: float) -> Choose:
    """A function that chooses ε-greedy actions with one uniform number u for each. If u < ε, u also selects the action,
    because u/ε is then uniform in [0, 1)."""
    def choose(q: Tensor, uniforms: Tensor) -> Tensor:
        actions = q.shape[-1]
        named = (uniforms / max(epsilon, 1e-12) * actions).long().clamp(max=actions - 1)
        return torch.where(uniforms < epsilon, named, q.argmax(-1))
    return choose


def run(session: DeepSession) -> Iterator[Record]:
    """Yield a Record for each rollout and the updates after it."""
    while session.step < session.spec.steps:
        knobs = session.knobs
        epsilon = linear_epsilon(session.step / session.spec.steps, knobs["epsilon_start"], knobs["epsilon_end"],
                                 knobs["exploration_frac"])
        batch = collect(session, int(knobs["rollout_steps"]), epsilon_greedy(epsilon))
        session.transitions.add(n_step(batch, int(knobs["n_steps"]), knobs["gamma"]))
        metrics = {"epsilon": epsilon, "replay_size": len(session.transitions)}
        if session.env_steps >= knobs["learning_starts"]:
            metrics |= learn(session)
        yield record(session, metrics)


def learn(session: DeepSession) -> dict[str, float]:
    """The updates that follow a rollout; means over them."""
    measured = []
    for _ in range(int(session.knobs["gradient_steps"])):
        drawn = session.transitions.sample(int(session.knobs["batch_size"]), session.generator)
        measured.append(update(session, drawn))
        if session.updates % int(session.knobs["target_every"]) == 0:
            polyak(session.networks["target"], session.networks["q"], session.knobs["tau"])
    names = ("loss", "td_error", "q/mean", "grad_norm")
    means = torch.tensor(measured).mean(0).tolist()
    return {**dict(zip(names, means, strict=True)), "learning_rate": session.knobs["learning_rate"] * session.remaining}


def update(session: DeepSession, data: Transitions) -> tuple[float, ...]:
    """One update. Returns its loss, mean |δ|, mean Q(s, a) and the gradient's norm."""
    knobs, network = session.knobs, session.networks["q"]
    with torch.no_grad():
        chooser = network(data.next_observations) if knobs["double"] else None
        targets = target(data.rewards, data.terminated, session.networks["target"](data.next_observations),
                         knobs["gamma"] ** data.spans, chooser)
    q = network(data.observations).gather(1, data.actions.unsqueeze(1)).squeeze(1)
    loss = LOSSES[knobs["td_loss"]](q, targets)
    norm = session.optimise("q", knobs["learning_rate"], loss)
    session.updates += 1
    with torch.no_grad():
        return float(loss.detach()), float((q - targets).abs().mean()), float(q.mean()), norm
