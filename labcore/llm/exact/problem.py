"""A run's problem, enumerated: its prompts, every completion, and their mean rewards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from labcore.catalog import choices
from labcore.catalog.exact import BETA
from labcore.llm.batch import Completions, Prompts, decode
from labcore.llm.generation import Generated
from labcore.llm.nets.critic import Network
from labcore.llm.nets.forward import completion_outputs
from labcore.llm.networks import REFERENCE, TEACHER
from labcore.llm.rendering import encode_prompts
from labcore.llm.rewards import reward, verified
from labcore.llm.session import LlmSession
from labcore.tasks.enumerable import LIMIT, Enumerable, count
from labcore.tasks.task import Problem

# ---------------------------------------------------------------- enumeration
# Every completion of a small vocabulary, and the log-probability that a policy gives to each.
#
# The log-probs are differentiable and in float64, whatever the network computes in. A network runs once over the
# shortest set of rows that holds every prefix, not once over every completion: with V tokens that is about V times
# less.


@dataclass(frozen=True)
class Space:
    """All N completions of a problem, the shortest first: `completions`, ids and mask (N, T).

    `carriers` (R, T) are rows to run a network on: the prefixes of every completion are among theirs. `carrier` (N, T)
    is the row that holds the prefix before each token: one row for one prefix, so that its distribution sums to 1.
    """

    completions: Completions
    carriers: Tensor
    carrier: Tensor

    def __len__(self) -> int:
        return len(self.completions)

    @property
    def lengths(self) -> Tensor:
        """Tokens of each completion, its end token included. (N,)"""
        return self.completions.lengths


def completions(vocabulary: Sequence[int], length: int, end: int, limit: int = LIMIT,
                device: torch.device | str = "cpu") -> Space:
    """Every completion of at most `length` tokens of `vocabulary`: it ends with `end`, or at the length limit. Raises
    LabError if there are more than `limit`."""
    letters = [token for token in vocabulary if token != end]
    count(len(letters), length, limit, ends=end in vocabulary)
    going: list[tuple[int, ...]] = [()]
    rows: list[tuple[int, ...]] = []
    for _ in range(length):
        if end in vocabulary:
            rows += [(*prefix, end) for prefix in going]
        going = [(*prefix, letter) for prefix in going for letter in letters]
    rows += going
    # Prefixes of T − 1 tokens hold all shorter ones; what stands in the last column is never looked at.
    longest = list(dict.fromkeys(row[:-1] for row in going)) or [(end,) * (length - 1)]
    place = {prefix[:size]: index for index, prefix in reversed(list(enumerate(longest))) for size in range(length)}
    ids = torch.tensor([[*row, *[end] * (length - len(row))] for row in rows], device=device)
    mask = torch.tensor([[at < len(row) for at in range(length)] for row in rows], device=device)
    truncated = torch.tensor([row[-1] != end for row in rows], device=device)
    return Space(Completions(ids, mask, truncated),
                 torch.tensor([[*prefix, end] for prefix in longest], device=device),
                 torch.tensor([[place[row[:min(at, len(row) - 1)]] for at in range(length)] for row in rows],
                              device=device))


def token_logprobs(policy: Network, prompts: Prompts, space: Space, temperature: float = 1.0) -> Tensor:
    """log π of each token of each completion after each prompt, 0 where not counted. (P, N, T) float64 nats

    With its gradient, unless the caller has switched that off.
    """
    width = space.carriers.shape[1]
    logits = completion_outputs(policy, prompts, space.carriers.repeat(len(prompts), 1))
    log_pi = (logits.double() / temperature).log_softmax(-1).view(len(prompts), len(space.carriers), width, -1)
    ids = space.completions.ids.expand(len(prompts), -1, -1)
    chosen = log_pi[:, space.carrier, torch.arange(width, device=ids.device)].gather(-1, ids[..., None])[..., 0]
    return chosen.masked_fill(~space.completions.mask, 0)


def logprobs(policy: Network, prompts: Prompts, space: Space, temperature: float = 1.0) -> Tensor:
    """log π(y | x) of each completion after each prompt: Σ_y π(y | x) = 1. (P, N) float64 nats, differentiable"""
    return token_logprobs(policy, prompts, space, temperature).sum(-1)


# ---------------------------------------------------------------- problem

VERIFIER = "verifier"  # the source where the loop has no other


@dataclass(frozen=True)
class Enumerated:
    """P problems with the N completions of `space`; `texts` (N) and their mean rewards (P, N) float64, with these
    knobs of the reward (`rewarded_by`)."""

    problems: list[Problem]
    prompts: Prompts
    space: Space
    texts: list[str]
    rewards: Tensor
    rewarded: Mapping[str, Any]


def enumerate_problem(session: LlmSession, task: Enumerable) -> Enumerated:
    """Every completion of every prompt of `task`, with the rewards of the source that the run has chosen. Raises
    LabError if there are too many completions."""
    tokenizer = session.tokenizer
    problems = [task.problem(prompt) for prompt in task.prompts]
    prompts = encode_prompts(session.rendering, problems, session.context - 1, session.device)
    space = completions(range(len(tokenizer)), task.length, tokenizer.eos_token_id, device=session.device)
    texts = decode(tokenizer, space.completions, session.rendering.ends)
    whole = space.completions.repeated(len(problems))
    earned = _mean_rewards(session, problems, Generated(prompts, whole, texts * len(problems)))
    return Enumerated(problems, prompts, space, texts, earned.view(len(problems), -1).to(session.device),
                      rewarded_by(session))


def _mean_rewards(session: LlmSession, problems: list[Problem], generated: Generated) -> Tensor:
    """The mean reward of each completion, before shaping; where rewards are flipped, that is known too. (P·N,)"""
    knobs: Mapping[str, Any] = session.knobs
    source = knobs.get("reward_source", VERIFIER)
    if source == "noisy_verifier":
        flipped, true = knobs["reward_noise"], verified(session, problems, generated).total
        mean: Tensor = (1 - flipped) * true + flipped * (1 - true)
        return mean
    return verified(session, problems, generated).total if source == VERIFIER else reward(
        session, problems, generated).total


def rewarded_by(session: LlmSession) -> dict[str, Any]:
    """The knobs that the mean rewards depend on, as they are now: they may be moved during a run."""
    source = str(session.knobs.get("reward_source", VERIFIER))
    return {"reward_source": source} | {key: session.knobs[key] for key in choices.REWARD[source].needs}


def effective_beta(session: LlmSession) -> float:
    """β of the objective: 0 where the KL is only measured or nothing is compared with a reference, and as an adaptive
    controller has moved it. A run with a teacher has the objective of which the teacher is the optimum."""
    if TEACHER in session.models:
        return BETA
    if session.knobs.get("kl_placement") == "off" or REFERENCE not in session.models:
        return 0.0
    return float(session.in_force["beta"] if "kl_placement" in session.knobs else session.knobs["beta"])
