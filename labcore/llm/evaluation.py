"""Measure a policy by sampling completions of fresh prompts, for loops that do not sample themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from labcore.llm.batch import Completions
from labcore.llm.episodes import episodes_of
from labcore.llm.generation import Generated, Sampling, generate, reference_logprobs
from labcore.llm.networks import REFERENCE
from labcore.llm.rewards import Rewards, verified
from labcore.llm.session import LlmSession
from labcore.maths import kl
from labcore.maths.masked import extremes, masked_mean
from labcore.runs.spec.activity import part_of
from labcore.tasks.task import Problem

# ---------------------------------------------------------------- measures
# Numbers that several loops log of sampled completions.


def score_metrics(rewards: Rewards, completions: Completions) -> dict[str, float]:
    """The mean reward, the share of right completions and the lengths. Completions that could not be scored do not
    count in the mean reward."""
    scored = rewards.total[~rewards.total.isnan()].float()
    metrics = {} if not len(scored) else {
        "reward": float(scored.mean()), "reward_std": float(scored.std(correction=min(1, len(scored) - 1)))}
    return {**metrics,
            "exact_match": int(rewards.exact.sum()) / len(rewards.exact),
            "completions/mean_length": float(completions.lengths.float().mean()),
            "completions/truncated_frac": float(completions.truncated.float().mean())}


def episode_metrics(texts: Sequence[str]) -> dict[str, float]:
    """Turns, reward for each turn, and ends by the turn limit of the episodes among some completions."""
    episodes = episodes_of(texts)
    if not episodes:
        return {}
    turns = sum(len(episode.moves) for episode in episodes)
    return {"episodes/mean_turns": turns / len(episodes),
            "episodes/reward_per_turn": sum(sum(episode.rewards) for episode in episodes) / turns,
            "episodes/unended_frac": sum(not episode.done for episode in episodes) / len(episodes)}


def kl_metrics(logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor) -> dict[str, float]:
    """The three estimates of KL(policy ‖ reference) from the policy's own samples, nats/token."""
    mean = {f"kl/{estimate.__name__}": float(masked_mean(estimate(logprobs, ref_logprobs), mask))
            for estimate in (kl.k1, kl.k2, kl.k3)}
    return {"kl": mean["kl/k3"], **mean}


def zero_variance(rewards: Tensor) -> float:
    """The share of groups whose scored rewards are all equal. (P, G) -> share"""
    return float(_flat(rewards).float().mean())


def group_shares(rewards: Tensor, exact: Tensor) -> dict[str, float]:
    """The shares of groups with equal rewards, groups without a right completion, and groups with only right ones. (P,
    G), bool (P·G,)"""
    right = exact.view(len(rewards), -1)
    return {"frac_reward_zero_std": zero_variance(rewards),
            "groups/solve_none_frac": float((~right.any(1)).double().mean()),
            "groups/solve_all_frac": float(right.all(1).double().mean())}


def signal_first(rewards: Tensor) -> list[int]:
    """The groups whose scored rewards differ, then the others, both in their order. (P, G) -> P places"""
    flat = _flat(rewards).tolist()
    return sorted(range(len(flat)), key=flat.__getitem__)


def _flat(rewards: Tensor) -> Tensor:
    """True if all scored rewards of a group are equal. (P, G) -> (P,)"""
    lowest, highest = extremes(rewards, 1)
    return (highest <= lowest)[:, 0]


# ---------------------------------------------------------------- evaluation

@dataclass(frozen=True)
class Evaluation:
    """The metrics of one completion for each of `eval_prompts` new prompts, with the completions themselves."""

    metrics: dict[str, float]
    problems: list[Problem]
    generated: Generated
    rewards: Rewards


@part_of("evaluation")
def evaluate(session: LlmSession) -> Evaluation:
    """Sample with the session's sampling knobs, verify, and with a reference measure the KL to it."""
    with session.probes.evaluating():
        return _evaluate(session)


def _evaluate(session: LlmSession) -> Evaluation:
    problems = session.task.problems(int(session.knobs["eval_prompts"]), session.rng)
    generated = generate(session, session.policy, problems, 1, Sampling.of(session.knobs))
    completions, rewards = generated.completions, verified(session, problems, generated)
    metrics = score_metrics(rewards, completions)
    if not session.spec.task_row.verifiable:
        metrics = {key: value for key, value in metrics.items() if key.startswith("completions/")}
    metrics |= episode_metrics(generated.texts) | kl_to_reference(session, generated)
    return Evaluation(metrics, problems, generated, rewards)


def kl_to_reference(session: LlmSession, generated: Generated) -> dict[str, float]:
    """The KL of the policy to its reference, estimated from completions that the policy has just sampled; empty if the
    run has no reference."""
    if REFERENCE not in session.models:
        return {}
    completions = generated.completions
    assert completions.logprobs is not None
    reference = reference_logprobs(session, generated.prompts, completions, completions.logprobs)
    return kl_metrics(completions.logprobs, completions.logprobs if reference is None else reference, completions.mask)
