"""Proximal policy optimisation: several epochs on one batch, kept near the policy that sampled it.

    clip        L = −mean min(ρA, clip(ρ, 1 − ε_low, 1 + ε_high) A) − c_H H
    kl_penalty  L = −mean (ρA − β KL(π_old ‖ π)) − c_H H,   β doubled where KL > 1.5 d, halved where KL < d / 1.5

Policy and critic are two networks with an optimizer each. Left out: early stopping of the epochs at a KL.

Source: Schulman et al. 2017, arXiv:1707.06347, eqs. 7 and 8, section 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from labcore.catalog.families.surrogates import OBJECTIVE
from labcore.classic.deep import record as line
from labcore.classic.deep.credit import TrainingBatch, critic_update, training_batch
from labcore.classic.deep.distributions import Distribution
from labcore.classic.deep.measures import cut_off, explained, said, surrogates
from labcore.classic.deep.networks import parameters
from labcore.classic.deep.record import record
from labcore.classic.deep.rollout import collect
from labcore.classic.deep.session import DeepSession
from labcore.maths.call import call, member
from labcore.runs.spec.session import Record


def run(session: DeepSession) -> Iterator[Record]:
    """Yield a Record per rollout and the epochs on it."""
    while session.step < session.spec.steps:
        data = training_batch(session, collect(session, int(session.knobs["rollout_steps"])))
        before = parameters(session.policy)
        measured = [update(session, data.select(rows) if rows is not None else data) for rows in parts(session, data)]
        names = ("policy_loss", "value_loss", "grad_norm")
        metrics = dict(zip(names, torch.tensor(measured).mean(0).tolist(), strict=True))
        metrics |= {**measures(session, data), **explained(data), "beta": settings(session)["beta"],
                    "learning_rate": session.knobs["learning_rate"] * session.remaining}
        bounds = settings(session)
        session.numbers["beta_factor"] = adapt(session.numbers.get("beta_factor", 1.0), metrics["kl/step"],
                                               session.knobs["kl_target"])
        yield record(session, metrics, data, (bounds["clip_low"], bounds["clip_high"]),
                     draw=partial(line.line, session, data, before, bounds))


def settings(session: DeepSession) -> dict[str, Any]:
    """The clip range, which falls with the learning rate, and β with its adaptive factor."""
    knobs = session.knobs
    return {"clip_low": knobs["clip_low"] * session.remaining, "clip_high": knobs["clip_high"] * session.remaining,
            "beta": knobs["beta"] * session.numbers.get("beta_factor", 1.0)}


def parts(session: DeepSession, data: TrainingBatch) -> Iterator[Tensor | None]:
    """The rows of each update: every epoch is divided anew into mini-batches. None stands for all rows in their
    order."""
    count = int(session.knobs["mini_batches"])
    for _ in range(int(session.knobs["epochs"])):
        if count == 1:
            yield None
            continue
        device = data.actions.device
        yield from torch.randperm(len(data), generator=session.generator, device=device).chunk(count)


def adapt(factor: float, kl: float, kl_target: float) -> float:
    """β ← 2β where KL > 1.5 d, β/2 where KL < d/1.5; d = 0 leaves it. Held within 2^±20.

    Source: Schulman et al. 2017, section 4.

    >>> adapt(1.0, 0.02, 0.01), adapt(1.0, 0.001, 0.01), adapt(1.0, 0.01, 0.01), adapt(1.0, 0.02, 0.0)
    (2.0, 0.5, 1.0, 1.0)
    """
    if not kl_target:
        return 1.0
    scaled = factor * (2 if kl > 1.5 * kl_target else 0.5 if kl < kl_target / 1.5 else 1)
    return min(max(scaled, 2.0**-20), 2.0**20)


def policy_loss(policy: Distribution, data: TrainingBatch, knobs: Mapping[str, Any]) -> Tensor:
    """L = −mean S(ρ, A) − c_H mean H, with ρ = π/π_old. -> ()

    S is the objective that `knobs` names; the entropy and the KL are exact.
    """
    tensors = {"ratio": (policy.log_prob(data.actions) - data.old_logprobs).exp(), "advantages": data.advantages,
               "kl": data.old.kl(policy)}
    surrogate: Tensor = call(member(OBJECTIVE, knobs["objective"]), knobs, tensors)
    loss = -surrogate.mean()
    if knobs["entropy_coef"]:
        loss = loss - knobs["entropy_coef"] * policy.entropy().mean()
    return loss


def update(session: DeepSession, data: TrainingBatch) -> tuple[float, ...]:
    """One update of the policy and one of the critic. Returns both losses and the norm of the policy's gradient."""
    knobs = session.knobs
    loss = policy_loss(session.policy.distribution(data.observations), data, {**knobs, **settings(session)})
    norm = session.optimise("policy", knobs["learning_rate"], loss)
    fitted = critic_update(session, data, knobs["value_clip"] if knobs["clip_values"] else None)
    session.updates += 1
    return float(loss.detach()), fitted, norm


@torch.no_grad()
def measures(session: DeepSession, data: TrainingBatch) -> dict[str, float]:
    """The metrics of a step's updates, measured after them on the whole batch."""
    policy = session.policy.distribution(data.observations)
    found = surrogates(policy, data, settings(session)) | said(policy)
    return found | cut_off(policy, data, settings(session)) if OBJECTIVE[session.knobs["objective"]].cut else found
