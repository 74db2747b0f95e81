"""Everything that a step of a session can sample: all completions of all prompts, with their probabilities and rewards.

What the completions earn is asked of the run's own reward source and shaping, so the truth is that of the reward which
the run is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from labcore.errors import LabError
from labcore.llm.batch import Completions, Prompts
from labcore.llm.exact.problem import Space, effective_beta, enumerate_problem, token_logprobs
from labcore.llm.exact.truth import gradient, truth
from labcore.llm.experience import Batch, Sampled, judged, rollout_of
from labcore.llm.generation import Generated
from labcore.llm.rollout import Rollout, rewards_of_tokens, total_rewards
from labcore.llm.sampler_weights import sampling_weights
from labcore.llm.session import LlmSession
from labcore.tasks.enumerable import Enumerable
from labcore.tasks.task import Problem


@dataclass(frozen=True)
class World:
    """The Q prompts of a problem, all as likely, and the N completions that each can get.

    `rewards` (Q, N) float64 are after shaping, with the rewards of tokens; `logps` (Q, N, T) nats are the policy's at
    the run's temperature. `rollout` holds all Q·N completions as a batch of an online session's. `age` is how many
    updates ago the policy that writes was the session's: 0 is its own.
    """

    problems: list[Problem]
    prompts: Prompts
    space: Space
    texts: list[str]  # N
    logps: Tensor
    rewards: Tensor
    rollout: Rollout | None = None
    age: int = 0

    @staticmethod
    def of(session: LlmSession, older: nn.Module | None = None, age: int = 1) -> World:
        """Enumerate all completions of the session's policy, or of `older`, the policy of `age` updates ago. Raises
        LabError if there are too many completions, or the mean rewards are not known."""
        problem = enumerate_problem(session, cast(Enumerable, session.task))
        problems, prompts, space = problem.problems, problem.prompts, problem.space
        with torch.no_grad(), sampling_weights(session):
            logps = token_logprobs(older or session.policy, prompts, space, session.knobs["temperature"])
        rollout, rewards = None, problem.rewards
        every = replace(space.completions.repeated(len(prompts)), logprobs=logps.flatten(0, 1).float())
        generated = Generated(prompts, every, problem.texts * len(prompts))
        if "reward_source" in session.knobs:
            rollout = replace(rollout_of(session, judged(session, problems, generated)), kept=None)
            if session.knobs["reward_source"] != "noisy_verifier" or session.knobs["shaping"] != "none":
                rewards = _earned(session, problems, generated, rollout).view(len(prompts), -1)
            else:  # not what was drawn just now, but what is drawn on average
                rollout = replace(rollout, shaped=rewards.flatten().to(rollout.shaped))
        return World(problems, prompts, space, problem.texts, logps, rewards.double(), rollout, age if older else 0)

    def __len__(self) -> int:
        return len(self.problems)

    @property
    def probabilities(self) -> Tensor:
        """π(y | x) of every completion. (Q, N)"""
        return self.logps.sum(-1).exp()

    def objective(self, session: LlmSession) -> Tensor:
        """J − β KL(π‖π_ref) of the session's policy, in reward; β counts wherever the run places its KL. ()"""
        knobs = session.in_force
        logp, ref_logp = (token_logprobs(model, self.prompts, self.space, knobs["temperature"]).sum(-1)
                          for model in (session.policy, session.reference))
        return truth(logp, ref_logp.detach(), self.rewards, effective_beta(session)).objective

    def gradient(self, session: LlmSession) -> Tensor:
        """∇(J − β KL) of the session's policy. (D,) float64"""
        return gradient(self.objective(session), session.policy.parameters())

    def values(self, session: LlmSession) -> Tensor:
        """The expected return from each token on: an exact critic; 0 for tokens that do not count. (Q, N, T)

        Of the rewards that the session's advantages are made from: less the KL where it is in the reward.
        """
        assert self.rollout is not None
        mask, earned = self.rollout.completion_mask, rewards_of_tokens(session.in_force, self.rollout).double()
        to_come = (earned * mask).flip(1).cumsum(1).flip(1).view(*self.logps.shape)
        likely = self.probabilities
        found = torch.zeros_like(self.logps)
        for at in range(self.logps.shape[2]):
            rows = self.space.completions.mask[:, at].nonzero()[:, 0]
            prefix = self.space.carrier[rows, at]  # one row for one prefix
            weight = likely[:, rows]
            total, mass = (torch.zeros(len(self), int(prefix.max()) + 1).double().index_add(1, prefix, each)
                           for each in (weight * to_come[:, rows, at], weight))
            found[:, rows, at] = (total / mass)[:, prefix]
        return found

    def places(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The index of each row in the space of completions. (B, T'), bool (B, T') -> (B,)"""
        known = {tuple(row[:length]): place for place, (row, length) in enumerate(
            zip(self.space.completions.ids.tolist(), self.space.lengths.tolist(), strict=True))}
        return torch.tensor([known[tuple(row[:length])] for row, length in
                             zip(ids.tolist(), mask.sum(1).tolist(), strict=True)])

    def batch(self, session: LlmSession, asked: Sequence[int], answers: Sequence[Sequence[int]]) -> Batch:
        """The batch of some prompts and of G completions of each, as if the session had sampled it."""
        rows = torch.tensor(answers)
        which = torch.tensor(asked)
        flat, whose = rows.flatten(), which.repeat_interleave(rows.shape[1])
        done = self.space.completions
        completions = Completions(done.ids[flat], done.mask[flat], done.truncated[flat],
                                  self.logps[whose, flat].to(next(session.policy.parameters()).dtype))
        texts = [self.texts[n] for n in flat.tolist()]
        sampled: Sampled = judged(session, [self.problems[q] for q in asked],
                                  Generated(self.prompts[which], completions, texts))
        age = torch.full((len(flat),), self.age) if self.age else None
        return Batch(sampled, rollout_of(session, sampled, age), [sampled])


def _earned(session: LlmSession, problems: list[Problem], generated: Generated, rollout: Rollout) -> Tensor:
    """The reward of each completion, after shaping. (Q·N,) Raises LabError where that is drawn at random."""
    again = judged(session, problems, generated).shaped
    if not torch.equal(rollout.shaped.nan_to_num(), again.nan_to_num()):
        raise LabError("Shaped rewards with noise in them have no mean that is known: set `shaping=none`, or "
                       "`reward_source=verifier`.")
    return total_rewards({**session.knobs, "kl_placement": "off"}, rollout)
