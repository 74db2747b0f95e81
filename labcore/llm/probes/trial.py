"""The effect of a step on a policy, measured on prompts that were not in its batch.

The policy answers a set of prompts before the step, and again after the step with the same random numbers, so that most
of the sampling noise cancels in the difference. A second estimate weighs the first answers by their new probability
over their old one. Both estimates have standard errors.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from labcore.llm.batch import Completions, Prompts
from labcore.llm.generation import Sampling, generate, token_logprobs
from labcore.llm.nets.critic import Network
from labcore.llm.rewards import verified
from labcore.llm.session import LlmSession
from labcore.maths.kl import k3
from labcore.maths.masked import masked_mean
from labcore.tasks.task import Problem

KL_OF_A_STEP, CLOSE = 0.01, 0.1  # nats/token that the step of common length may cost, and how nearly that is met
FIRST_TRY, TRIES, FEW = 0.03, 12, 128  # the length that is tried first, how often, and on how many prompts


@dataclass(frozen=True)
class Trial:
    """`problems` and the answers of the session's policy to them: rewards (N,) and log-probs (N, T), nats."""

    session: LlmSession
    problems: list[Problem]
    seed: int
    prompts: Prompts
    completions: Completions
    rewards: Tensor
    logprobs: Tensor

    @staticmethod
    def of(session: LlmSession, count: int, seed: int) -> Trial:
        """Draw `count` problems independently of any batch. A small file may yield the same problems again."""
        # Each network here answers once or twice: a recorded step would cost more than it saves, and keep the network.
        session = replace(session, graphs=None)
        count = min(count, session.task.size or count)
        problems = session.task.problems(count, np.random.default_rng((seed, 2**32)))
        prompts, completions, rewards = _sampled(session, session.policy, problems, seed)
        logprobs = token_logprobs(session, session.policy, prompts, completions)
        return Trial(session, problems, seed, prompts, completions, rewards, logprobs)

    @property
    def before(self) -> dict[str, Any]:
        """The mean reward before the step."""
        return {"reward": _mean(self.rewards), "prompts": len(self.problems)}

    def kl(self, model: Network) -> tuple[Tensor, Tensor]:
        """k3 of each token of the first answers, KL(before ‖ `model`), and `model`'s log-probs. (N, T), (N, T) nats"""
        logprobs = token_logprobs(self.session, model, self.prompts, self.completions)
        return k3(self.logprobs, logprobs) * self.completions.mask, logprobs

    def effect(self, model: Network) -> dict[str, Any]:
        """The change of the mean reward and of the policy from the one before to `model`.

        `resampled`: the difference of the mean rewards of answers drawn with the same random numbers. `weighted`: the
        mean of (ρ − 1)(R − R̄) over the first answers, ρ their whole ratio. `kl`: k3 from the policy before,
        nats/token.
        """
        _, _, rewards = _sampled(self.session, model, self.problems, self.seed)
        kl, logprobs = self.kl(model)
        ratio = ((logprobs - self.logprobs) * self.completions.mask).sum(1).exp()
        lengths = self.completions.mask.sum(1)
        per_token = kl.sum(1) / lengths.float().mean()
        mean = kl.sum() / lengths.sum()
        spread = per_token - mean * lengths / lengths.float().mean()
        return {"reward": _mean(rewards), "resampled": _mean(rewards - self.rewards),
                "weighted": _mean((ratio - 1) * (self.rewards - self.rewards.mean())),
                "kl": {"mean": float(mean), "se": _mean(spread)["se"]}}

    def along(self, gradient: Tensor, length: float) -> dict[str, Any] | None:
        """The effect of θ − `length` · g/‖g‖; None where the gradient is 0."""
        return self.effect(moved(self.session.policy, gradient, length)) if float(gradient.norm()) else None

    def measure(self, step: Callable[[LlmSession], LlmSession]) -> dict[str, Any]:
        """The effect of `step`, taken on a copy of the session, and how far it went: ‖Δθ‖."""
        before = parameters_to_vector(self.session.policy.parameters()).detach()
        unchanged = (self.session.spec, self.session.task, self.session.tokenizer)  # by any step: not copied
        policy = step(copy.deepcopy(self.session, {id(part): part for part in unchanged})).policy
        after = parameters_to_vector(policy.parameters()).detach()
        return self.effect(policy) | {"length": float((after - before).norm())}

    def step_length(self, gradients: Sequence[Tensor]) -> float | None:
        """The longest step that costs none of `gradients` more than about KL_OF_A_STEP; None where all are 0.

        KL grows with the square of a small step and faster with that of a large one: hence the two powers.
        """
        few = self._first(FEW)
        lengths: list[float] = []
        for gradient in gradients:
            length, cost = lengths[-1] if lengths else FIRST_TRY, 0.0
            for _ in range(TRIES if float(gradient.norm()) else 0):
                kl, _ = few.kl(moved(self.session.policy, gradient, length))
                cost = float(masked_mean(kl, few.completions.mask))
                if abs(cost / KL_OF_A_STEP - 1) < CLOSE:
                    break
                length *= min(10.0, (KL_OF_A_STEP / max(cost, 1e-12)) ** (0.5 if cost < KL_OF_A_STEP else 0.25))
            lengths += [length] if cost else []
        return min(lengths, default=None)

    def _first(self, count: int) -> Trial:
        """The trial on the first prompts only."""
        completions = self.completions
        some = Completions(completions.ids[:count], completions.mask[:count], completions.truncated[:count])
        return replace(self, problems=self.problems[:count], prompts=self.prompts[:count], completions=some,
                       rewards=self.rewards[:count], logprobs=self.logprobs[:count])


@torch.no_grad()
def moved(policy: Network, gradient: Tensor, length: float) -> Network:
    """A copy of the policy at θ − `length` · g/‖g‖."""
    model = copy.deepcopy(policy)
    parts = gradient.split([parameter.numel() for parameter in model.parameters()])
    for parameter, part in zip(model.parameters(), parts, strict=True):
        parameter -= (length / gradient.norm()) * part.view_as(parameter)
    return model


def _sampled(session: LlmSession, model: Network, problems: list[Problem],
             seed: int) -> tuple[Prompts, Completions, Tensor]:
    session.generator.manual_seed(seed)
    generated = generate(session, model, problems, 1, Sampling.of(session.knobs))
    rewards = verified(session, problems, generated).total.float().to(session.device)
    return generated.prompts, generated.completions, rewards


def _mean(values: Tensor) -> dict[str, float]:
    """The mean over prompts and its standard error."""
    return {"mean": float(values.mean()), "se": float(values.std() / len(values) ** 0.5)}
