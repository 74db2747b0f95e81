"""Trust-region policy optimisation: the longest step along the natural gradient within KL ≤ δ that improves.

    g = ∇ mean ρA,   x = F⁻¹ g by conjugate gradients,   Δθ = √(2δ / xᵀF x) x,   shortened until KL ≤ δ and gain > 0

F is the Hessian of mean KL(π_old ‖ π) at π = π_old, which is the Fisher matrix; it is only ever multiplied.

Source: Schulman et al. 2015, arXiv:1502.05477, section 6 and appendix C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from labcore.classic.deep import record as line
from labcore.classic.deep.credit import TrainingBatch, fit_critic, training_batch
from labcore.classic.deep.measures import explained, said, surrogates
from labcore.classic.deep.networks import MLP, flat, parameters, put
from labcore.classic.deep.record import record
from labcore.classic.deep.rollout import collect
from labcore.classic.deep.session import DeepSession
from labcore.runs.spec.session import Record

SHOWN = {"clip_low": 0.2, "clip_high": 0.2, "beta": 1.0}  # PPO's surrogates, for comparison only


def conjugate_gradient(product: Callable[[Tensor], Tensor], b: Tensor, iterations: int,
                       tolerance: float = 1e-10) -> Tensor:
    """x with F x ≈ b, from products F v alone; F symmetric, positive definite. (n,) -> (n,)

    Ends early where |r|² ≤ tolerance · |b|².

    Source: Hestenes and Stiefel 1952; Schulman et al. 2015, appendix C.
    """
    x, residual, direction = torch.zeros_like(b), b.clone(), b.clone()
    squared = residual @ residual
    floor = tolerance * squared
    for _ in range(iterations):
        if squared <= floor:
            break
        image = product(direction)
        length = squared / (direction @ image)
        x = x + length * direction
        residual = residual - length * image
        squared, before = residual @ residual, squared
        direction = residual + squared / before * direction
    return x


def fisher_product(policy: MLP, observations: Tensor, damping: float) -> Callable[[Tensor], Tensor]:
    """v -> (F + damping I) v, F = ∇² mean_N KL(π_old ‖ π) at π_old. (N, D) -> function (n,) -> (n,)

    ∇(∇KL · v): two passes back, no matrix.

    Source: Schulman et al. 2015, arXiv:1502.05477, appendix C.1; Pearlmutter 1994.
    """
    now = policy.distribution(observations)
    kl = now.detach().kl(now).mean()
    weights = list(policy.parameters())
    gradient = flat(torch.autograd.grad(kl, weights, create_graph=True))

    def product(v: Tensor) -> Tensor:
        return flat(torch.autograd.grad(gradient @ v, weights, retain_graph=True)) + damping * v
    return product


def line_search(measure: Callable[[float], tuple[float, float]], delta: float, backtrack: float,
                backtracks: int) -> tuple[float, int]:
    """The longest of the steps 1, b, b², … with KL ≤ δ and a gain above 0; 0 where none is. -> (share, tries)

    `measure(share)` gives (gain of the surrogate, KL) of that share of the full step.

    Source: Schulman et al. 2015, appendix C.
    """
    for tries in range(backtracks):
        gain, kl = measure(backtrack**tries)
        if gain > 0 and kl <= delta:
            return backtrack**tries, tries
    return 0.0, backtracks


def run(session: DeepSession) -> Iterator[Record]:
    """Yield a Record for each rollout and the step after it."""
    while session.step < session.spec.steps:
        data = training_batch(session, collect(session, int(session.knobs["rollout_steps"])))
        before = parameters(session.policy)
        metrics = step(session, data)
        draw = partial(line.line, session, data, before, SHOWN) if metrics["line_search/share"] > 0 else None
        metrics |= {"value_loss": fit_critic(session, data), **explained(data)}
        session.updates += 1
        yield record(session, metrics, data, draw=draw)


def gain(policy: MLP, data: TrainingBatch) -> Tensor:
    """mean (ρ − 1) A: what the surrogate gains over π_old. -> (), in the unit of the advantages"""
    logprobs = policy.distribution(data.observations).log_prob(data.actions)
    return (torch.expm1(logprobs - data.old_logprobs) * data.advantages).mean()


def step(session: DeepSession, data: TrainingBatch) -> dict[str, float]:
    """One step of the policy: direction, length, line search. Returns the metrics of the step. Raises Diverged if the
    gradient or the step is not finite; the weights are left as they were."""
    policy, knobs = session.policy, session.knobs
    theta, delta = parameters(policy), knobs["delta"] * session.remaining
    gradient = flat(torch.autograd.grad(gain(policy, data), list(policy.parameters())))
    norm = float(gradient.norm())
    session.must_be_finite("policy gradient", norm)
    product = fisher_product(policy, data.observations, knobs["damping"])
    direction = conjugate_gradient(product, gradient, int(knobs["cg_iterations"]))
    curvature = float(direction @ product(direction))
    full = direction * (2 * delta / curvature) ** 0.5 if curvature > 0 else torch.zeros_like(direction)
    session.must_be_finite("policy step", float(full.norm()))

    def measure(share: float) -> tuple[float, float]:
        put(policy, theta + share * full)
        with torch.no_grad():
            kl = data.old.kl(policy.distribution(data.observations)).mean()
            return float(gain(policy, data)), float(kl)

    share, tries = line_search(measure, delta, knobs["backtrack"], int(knobs["backtracks"]))
    put(policy, theta + share * full)
    with torch.no_grad():
        after = policy.distribution(data.observations)
        measured = surrogates(after, data, SHOWN) | said(after)
    return {**measured, "grad_norm": norm,
            "step_norm": share * float(full.norm()), "line_search/share": share, "line_search/backtracks": tries}
